import Foundation
import Secrets
import Testing

@testable import BackgroundJobs
@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Where webhooks may go")
struct WebhookAddressTests {
  // swift-format-ignore
  @Test("public addresses are distinguished from all others", arguments: [
      // address                                 public
      ("93.184.216.34",                          true),
      ("1.1.1.1",                                true),
      ("100.63.255.255",                         true),
      ("100.128.0.0",                            true),
      ("172.15.255.255",                         true),
      ("172.32.0.0",                             true),
      ("223.255.255.255",                        true),
      ("0.0.0.0",                                false),
      ("0.1.2.3",                                false),
      ("10.0.0.1",                               false),
      ("100.64.0.0",                             false),
      ("100.127.255.255",                        false),
      ("127.0.0.1",                              false),
      ("127.255.255.254",                        false),
      ("169.254.169.254",                        false),
      ("172.16.0.0",                             false),
      ("172.31.255.255",                         false),
      ("192.0.0.1",                              false),
      ("192.0.2.1",                              false),
      ("192.88.99.1",                            false),
      ("192.168.1.1",                            false),
      ("198.18.0.1",                             false),
      ("198.19.255.255",                         false),
      ("198.51.100.7",                           false),
      ("203.0.113.7",                            false),
      ("224.0.0.1",                              false),
      ("255.255.255.255",                        false),
      ("2606:2800:220:1:248:1893:25c8:1946",     true),
      ("2a00:1450:4001:81b::200e",               true),
      ("2001:200::",                             true),
      ("::",                                     false),
      ("::1",                                    false),
      ("::127.0.0.1",                            false),
      ("::ffff:127.0.0.1",                       false),
      ("::ffff:7f00:1",                          false),
      ("0:0:0:0:0:ffff:10.1.2.3",                false),
      ("::ffff:169.254.169.254",                 false),
      ("::ffff:93.184.216.34",                   true),
      ("64:ff9b::127.0.0.1",                     false),
      ("64:ff9b::a9fe:a9fe",                     false),
      ("64:ff9b::93.184.216.34",                 true),
      ("64:ff9b:1::1",                           false),
      ("100::1",                                 false),
      ("2001::1",                                false),
      ("2001:1ff::1",                            false),
      ("2001:db8::1",                            false),
      ("2002:7f00:1::",                          false),
      ("2002:5db8:d822::",                       false),
      ("3fff::1",                                false),
      ("4000::1",                                false),
      ("fc00::1",                                false),
      ("fd12:3456:789a::1",                      false),
      ("fe80::1",                                false),
      ("fe80::1%eth0",                           false),
      ("fec0::1",                                false),
      ("ff02::1",                                false),
    ])
  func isPublic(text: String, expected: Bool) throws {
    let address = try #require(IPAddress(text))
    #expect(address.isPublic == expected)
  }

  @Test(
    "what is no address in its usual form is none",
    arguments: [
      "", "example.com", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.",
      "1.2.3.4.5",
      "256.1.1.1", "1.2.3", "+1.2.3.4", "1.2.3.-4", "1..2.3", "１.2.3.4", ":", ":::",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "g::1", "+1::", "-0::1", "::1.2.3", "1.2.3.4::",
      "1:2:3:4:5:6:7::8:9", "1:2:3:4:5:6:7:1.2.3.4", "[::1]",
    ])
  func isNone(text: String) {
    #expect(IPAddress(text) == nil)
  }

  @Test("an address has the same bytes however it is written")
  func bytes() throws {
    #expect(IPAddress("1.2.3.4")?.bytes == [1, 2, 3, 4])
    let long = try #require(IPAddress("2001:0db8:0000:0000:0000:0000:0102:0304"))
    for text in ["2001:db8::102:304", "2001:DB8::1.2.3.4", "2001:db8:0::0:102:304"] {
      #expect(IPAddress(text) == long, "\(text)")
    }
    #expect(IPAddress("::")?.bytes == Array(repeating: 0, count: 16))
    #expect(IPAddress("1::")?.bytes.prefix(3) == [0, 1, 0])
  }

  private static let secret = "TENURE_WEBHOOK_SECRET"
  private static let secrets = ["one that is long enough", "another that is long enough"]

  private func settings(_ values: [String: String]) async throws -> Settings {
    try Settings(await SettingSource(environment: values))
  }

  // swift-format-ignore
  @Test("a webhook that can't be right is named before the program starts", arguments: [
      // URL                                  secret                       fault
      ("example.com",                         "long enough as it is",     "URL: must be a URL"),
      ("ftp://example.com/",                  "long enough as it is",     "URL: must be a URL"),
      ("https://",                            "long enough as it is",     "URL: must be a URL"),
      ("https://example.com:99999/",          "long enough as it is",     "URL: must be a URL"),
      ("https://example.com:0/",              "long enough as it is",     "URL: must be a URL"),
      ("https://name:word@example.com/",      "long enough as it is",     "URL: must not have a user"),
      ("https://example.com/#part",           "long enough as it is",     "URL: must not have a user"),
      ("https://127%2e0.0.1/",                "long enough as it is",     "URL: its host has"),
      ("http://127.0.0.1:80/",                "long enough as it is",     "URL: the address is private"),
      ("http://[::1]/",                       "long enough as it is",     "URL: the address is private"),
      ("http://[::ffff:10.0.0.1]/",           "long enough as it is",     "URL: the address is private"),
      ("https://example.com/",                "",                          "SECRET: required"),
      ("https://example.com/",                "short",                     "SECRET: must have at least"),
      ("https://example.com/",                "long enough for it,short",  "SECRET: must have at least"),
      ("https://example.com/",                "a,b,c",                     "SECRET: must be one secret"),
    ])
  func refused(url: String, secret: String, fault: String) async throws {
    let error = await #expect(throws: SettingError.self) {
      _ = try await settings(["TENURE_WEBHOOK_URL": url, Self.secret: secret])
    }
    let text = error?.description ?? ""
    #expect(text.hasPrefix("TENURE_WEBHOOK_" + fault), "\(text)")
    // Neither is printed: both are secrets.
    #expect(!text.contains("long enough") && !text.contains("word@"))
  }

  @Test("one secret, or two while one takes the other's place")
  func accepted() async throws {
    #expect(try await settings([:]).webhook == nil)
    #expect(try await settings([Self.secret: Self.secrets[0]]).webhook == nil)
    let one = try await settings([
      "TENURE_WEBHOOK_URL": "https://example.com/events?token=1", Self.secret: Self.secrets[0],
    ]).webhook
    #expect(one?.secrets.map(\.revealed) == [Self.secrets[0]])
    #expect(one?.host == "example.com")
    #expect(one?.allowsPrivateAddresses == false)
    let two = try await settings([
      "TENURE_WEBHOOK_URL": "http://[::1]:8080/", "TENURE_WEBHOOK_ALLOW_PRIVATE": "on",
      Self.secret: Self.secrets.joined(separator: ", "),
    ]).webhook
    #expect(two?.secrets.map(\.revealed) == Self.secrets)
    #expect(two?.host == "::1")
  }
}
