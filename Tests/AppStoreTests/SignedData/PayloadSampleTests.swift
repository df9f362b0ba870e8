import JSONText
import Subscriptions
import Testing

@testable import AppStore

/// Every payload that Apple has published loses nothing on its way in and out.
struct PayloadSampleTests {
  // swift-format-ignore
  @Test(arguments: [
    ("signedTransaction",                             JWSTransactionDecodedPayload.self),
    ("signedTransactionWithRevocation",               JWSTransactionDecodedPayload.self),
    ("signedRenewalInfo",                             JWSRenewalInfoDecodedPayload.self),
    ("appTransaction",                                JWSAppTransactionDecodedPayload.self),
    ("appData",                                       AppData.self),
    ("signedNotification",                            ResponseBodyV2DecodedPayload.self),
    ("signedConsumptionRequestNotification",          ResponseBodyV2DecodedPayload.self),
    ("signedExternalPurchaseTokenNotification",       ResponseBodyV2DecodedPayload.self),
    ("signedExternalPurchaseTokenSandboxNotification", ResponseBodyV2DecodedPayload.self),
    ("signedRescindConsentNotification",              ResponseBodyV2DecodedPayload.self),
    ("signedSummaryNotification",                     ResponseBodyV2DecodedPayload.self),
  ] as [(String, any SamplePayload.Type)])
  func `every field is known, and written as it was read`(
    name: String, type: any SamplePayload.Type
  ) throws {
    let text = try sample("app-store-server/\(name)")
    let json = try JSONValue(parsing: text)
    let payload = try type.init(json: json)
    #expect(payload.unknownNames == [])
    #expect(payload.json.sorted == json.sorted)
    #expect(try JSONValue(parsing: payload.json.bytes) == payload.json)
    #expect(json.keys.count > 3)
  }

  /// Fields that Apple adds later keep their position among the known ones.
  @Test func `unknown fields are kept`() throws {
    let json: JSONValue = [
      "transactionId": "1", "invented": ["a": [1, 2.5, .null]], "expiresDate": .null,
      "environment": "Moon", "offerType": 99, "commitmentInfo": ["surprise": true],
    ]
    let payload = try JWSTransactionDecodedPayload(json: json)
    #expect(payload.json.sorted == json.sorted)
    #expect(Set(payload.unknownNames) == ["invented", "expiresDate", "surprise"])
    #expect(payload.environment == SignedEnvironment(rawValue: "Moon"))
  }
}

protocol SamplePayload: JSONFieldValue {
  /// The names of all unknown fields, however deep.
  var unknownNames: [String] { get }
}

extension JSONPayload: SamplePayload {
  var unknownNames: [String] {
    unknownFields.map(\.key.rawValue)
      + members.flatMap { member in
        let field = Fields.schema.field(of: member) as? any SampleField
        return field?.unknownNames(in: member.value) ?? []
      }
  }
}

private protocol SampleField {
  func unknownNames(in json: JSONValue) -> [String]
}

extension JSONField: SampleField {
  fileprivate func unknownNames(in json: JSONValue) -> [String] {
    ((try? Value(json: json)) as? any SamplePayload)?.unknownNames ?? []
  }
}
