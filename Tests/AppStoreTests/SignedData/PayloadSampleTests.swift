import AppStore
import JSONText
import Subscriptions
import Testing

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
  ] as [(String, any JSONPayload.Type)])
  func `every field is known, and written as it was read`(
    name: String, type: any JSONPayload.Type
  ) throws {
    let text = try sample("app-store-server/\(name)")
    let json = try JSONValue(parsing: text)
    let payload = try type.init(json: json)
    #expect(unknownFields(in: payload) == [])
    #expect(payload.json.sorted == json.sorted)
    #expect(try JSONValue(parsing: payload.json.bytes) == payload.json)
    #expect(json.keys.count > 3)
  }

  /// What Apple adds tomorrow is kept where it stood, in the middle of what is known.
  @Test func `unknown fields are kept`() throws {
    let json: JSONValue = [
      "transactionId": "1", "invented": ["a": [1, 2.5, .null]], "expiresDate": .null,
      "environment": "Moon", "offerType": 99, "commitmentInfo": ["surprise": true],
    ]
    let payload = try JWSTransactionDecodedPayload(json: json)
    #expect(payload.json.sorted == json.sorted)
    #expect(Set(unknownFields(in: payload)) == ["invented", "expiresDate", "surprise"])
    #expect(payload.environment == SignedEnvironment(rawValue: "Moon"))
  }

  /// The names of all unknown fields, however deep.
  private func unknownFields(in value: Any) -> [String] {
    Mirror(reflecting: value).children.flatMap { child in
      if child.label == "unknownFields", let members = child.value as? [JSONValue.Member] {
        return members.map(\.key.rawValue)
      }
      return unknownFields(in: child.value)
    }
  }
}
