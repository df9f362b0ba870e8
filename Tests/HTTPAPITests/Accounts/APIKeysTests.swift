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
      ("", 1, APIKeyError.Fault.notThreeParts),
      ("shop:app:hunter2-hunter2-2,", 2, .notThreeParts),
      ("hunter2", 1, .notThreeParts),
      ("shop:hunter2", 1, .notThreeParts),
      (":app:hunter2", 1, .emptyName),
      ("shop:hunter2:app", 1, .unknownRole),
      ("shop:App:hunter2", 1, .unknownRole),
      ("shop:app:", 1, .shortSecret),
      ("shop:app:hunter2", 1, .shortSecret),
      ("a:app:hunter2-hunter2-2,b:admin:hunter2-hunter2-3,x:app:hunter2-hunter", 3, .shortSecret),
      ("shop:app:hunter2 hunter2 hunter2", 1, .unusableSecret),
      ("shop:app:hünter2-hünter2", 1, .unusableSecret),
      ("shop:app:hunter2-hunter2-2,shop:admin:other-other-other", 2, .duplicateName),
      ("shop:app:hunter2-hunter2-2,ops:admin:hunter2-hunter2-2", 2, .duplicateSecret),
    ])
  func faults(text: String, entry: Int, fault: APIKeyError.Fault) {
    let error = #expect(throws: APIKeyError.self) { try APIKeys(parsing: Secret(text)) }
    #expect(error?.entry == entry)
    #expect(error?.fault == fault)
    #expect(error?.description.contains("hunter2") == false)
    #expect(error?.description.contains("hünter2-hünter2") == false)
    #expect(error?.description.contains("name:role:secret") == (fault == .notThreeParts))
  }

  @Test func `administrators may do what app servers may, and not the reverse`() {
    #expect(APIKeys.Role.admin >= .app)
    #expect(APIKeys.Role.app >= .app)
    #expect(!(APIKeys.Role.app >= .admin))
  }
}
