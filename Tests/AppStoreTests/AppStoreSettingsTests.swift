import AppStore
import Secrets
import Subscriptions
import Testing

/// A wrong setting is refused with words that say what would be right.
struct AppStoreSettingsTests {
  @Test(arguments: ["", "com example", "a,b", " com.example.app"])
  func `no bundle id`(text: String) {
    #expect(throws: AppStoreSettingError.self) { try AppStoreApp(bundleID: text) }
  }

  @Test(arguments: [0, -1])
  func `no Apple ID`(number: Int64) {
    #expect(throws: AppStoreSettingError.self) { try AppStoreApp(bundleID: "a", appleID: number) }
  }

  @Test(arguments: ["", "ab cd", "abcd\n"])
  func `no shared secret, and it is not repeated`(text: String) {
    let error = #expect(throws: AppStoreSettingError.self) {
      try AppStoreApp(bundleID: "a", sharedSecret: Secret(text))
    }
    #expect(text.isEmpty || error?.description.contains(text) == false)
  }

  @Test func `apps are found by their exact bundle id`() throws {
    let apps = try AppStoreApps([
      try AppStoreApp(bundleID: "a", appleID: 1), try AppStoreApp(bundleID: "b"),
    ])
    #expect(apps["a"]?.appleID == 1)
    #expect(apps["A"] == nil)
    #expect(apps.all.map(\.bundleID) == ["a", "b"])
  }

  @Test func `no app, or one twice`() throws {
    #expect(throws: AppStoreSettingError.self) { try AppStoreApps([]) }
    let app = try AppStoreApp(bundleID: "a")
    let error = #expect(throws: AppStoreSettingError.self) { try AppStoreApps([app, app]) }
    #expect(error?.description.contains("entries 1 and 2") == true)
  }

  @Test(arguments: ["", "verifyReceipt", "ftp://127.0.0.1/x", "http://", "https:/one", "h ttp://x"])
  func `no URL`(text: String) {
    let good = "http://127.0.0.1:8081/verifyReceipt"
    for (production, sandbox) in [(text, good), (good, text)] {
      #expect(throws: AppStoreSettingError.self) {
        try AppleURLs.verifyReceipt.replaced(production: production, sandbox: sandbox)
      }
    }
  }

  @Test func `a URL that can't be kept with an exchange`() throws {
    let url = "http://127.0.0.1:8081/"
    let longest = url + String(repeating: "v", count: 255 - url.count)
    _ = try AppleURLs.verifyReceipt.replaced(production: longest, sandbox: url)
    #expect(throws: AppStoreSettingError.self) {
      try AppleURLs.verifyReceipt.replaced(production: longest + "v", sandbox: url)
    }
  }

  @Test func `each environment has its URL`() throws {
    let endpoints = try AppleURLs.verifyReceipt.replaced(
      production: "http://127.0.0.1:1/p", sandbox: "HTTPS://localhost/s")
    #expect(endpoints[.production] == "http://127.0.0.1:1/p")
    #expect(endpoints[.sandbox] == "HTTPS://localhost/s")
  }
}
