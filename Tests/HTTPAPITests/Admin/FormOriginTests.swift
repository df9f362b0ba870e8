import HTTPTypes
import HummingbirdCore
import NIOCore
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The check of a form's origin, with and without a proxy.
struct FormOriginTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var host: String
    var forwarded: String?
    var origin: String
    var isOurs: Bool

    init(_ host: String, _ forwarded: String?, _ origin: String, _ isOurs: Bool) {
      (self.host, self.forwarded, self.origin, self.isOurs) = (host, forwarded, origin, isOurs)
    }

    var testDescription: String { "\(host) \(forwarded ?? "-") \(origin)" }
  }

  static let cases = [
    // The proxy forwards its own `Host`.
    Case("tenure.example.org", nil, "https://tenure.example.org", true),
    Case("tenure.example.org:8443", nil, "https://tenure.example.org:8443", true),
    Case("Tenure.example.org:443", nil, "https://tenure.EXAMPLE.org", true),
    Case("tenure.example.org", nil, "https://localhost", false),
    Case("tenure.example.org", nil, "https://tenure.example.org:8443", false),
    // The proxy replaces `Host` and sets `X-Forwarded-Host`.
    Case("10.0.0.7:8080", "tenure.example.org", "https://tenure.example.org", true),
    Case("10.0.0.7:8080", "tenure.example.org, inner.example", "https://tenure.example.org", true),
    Case("10.0.0.7:8080", "inner.example, tenure.example.org", "https://tenure.example.org", false),
    Case("10.0.0.7:8080", nil, "https://tenure.example.org", false),
    Case("10.0.0.7:8080", "tenure.example.org", "https://example.org", false),
    Case("10.0.0.7:8080", "tenure.example.org", "http://10.0.0.7:8080", true),
  ]

  @Test("A form comes from the host that was called, or the proxy was", arguments: cases)
  func origin(_ one: Case) {
    var fields: HTTPFields = [.origin: one.origin]
    fields[.forwardedHost] = one.forwarded
    let request = Request(
      head: HTTPRequest(
        method: .post, scheme: "http", authority: one.host, path: "/admin/parked/jobs",
        headerFields: fields), body: RequestBody(buffer: ByteBuffer()))
    #expect(request.isFromOurPages == one.isOurs)
  }
}
