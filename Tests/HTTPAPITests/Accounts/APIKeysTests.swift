import Secrets
import Testing

@testable import HTTPAPI

struct APIKeysTests {
  static let text = "shop:app:s3cret-one-as-long, ops:admin:with:colons:inside"

  @Test(
    "Who calls",
    arguments: [
      ("Bearer s3cret-one-as-long", "shop", APIKeys.Role.app),
      ("bearer s3cret-one-as-long", "shop", .app),
      ("BEARER with:colons:inside", "ops", .admin),
    ])
  func known(authorization: String, name: String, role: APIKeys.Role) throws {
    let caller = try APIKeys(parsing: Secret(Self.text)).caller(authorization: authorization)
    #expect(caller?.name == name)
    #expect(caller?.role == role)
  }

  @Test(
    "Who does not",
    arguments: [
      "", "Bearer", "Bearer ", "Bearer s3cret-one-as-lon", "Bearer s3cret-one-as-long ",
      "Bearer S3CRET-ONE-AS-LONG",
      "Basic s3cret-one-as-long", "s3cret-one-as-long", "Bearers3cret-one-as-long",
    ])
  func unknown(authorization: String) throws {
    #expect(try APIKeys(parsing: Secret(Self.text)).caller(authorization: authorization) == nil)
  }

  @Test(
    "What is wrong with configured keys",
    arguments: [
      ("", 1, "not of the form name:role:secret"),
      ("shop:app:hunter2-hunter2-2,", 2, "not of the form name:role:secret"),
      ("hunter2", 1, "not of the form name:role:secret"),
      ("shop:hunter2", 1, "not of the form name:role:secret"),
      (":app:hunter2", 1, "the name before the first colon is empty"),
      ("shop:hunter2:app", 1, "unknown role"),
      ("shop:App:hunter2", 1, "unknown role"),
      ("shop:app:", 1, "the secret is shorter than 16"),
      ("shop:app:hunter2", 1, "the secret is shorter than 16"),
      (
        "a:app:hunter2-hunter2-2,b:admin:hunter2-hunter2-3,x:app:hunter2-hunter", 3,
        "the secret is shorter than 16"
      ),
      ("shop:app:hunter2 hunter2 hunter2", 1, "the secret has spaces"),
      ("shop:app:hünter2-hünter2", 1, "the secret has spaces"),
      (
        "shop:app:hunter2-hunter2-2,shop:admin:other-other-other", 2,
        "another key has the same name"
      ),
      (
        "shop:app:hunter2-hunter2-2,ops:admin:hunter2-hunter2-2", 2,
        "another key has the same secret"
      ),
    ] as [(String, Int, String)])
  func faults(text: String, entry: Int, fault: String) {
    let error = #expect(throws: APIKeyError.self) { try APIKeys(parsing: Secret(text)) }
    #expect(error?.entry == entry)
    #expect(error?.fault.hasPrefix(fault) == true)
    #expect(error?.description.contains("hunter2") == false)
    #expect(error?.description.contains("hünter2-hünter2") == false)
    #expect(error?.description.contains("name:role:secret") == fault.contains("name:role:secret"))
  }

  @Test func `administrators may do what app servers may, and not the reverse`() {
    #expect(APIKeys.Role.admin >= .app)
    #expect(APIKeys.Role.app >= .app)
    #expect(!(APIKeys.Role.app >= .admin))
  }
}
