import AppStore
import AppStoreSimulator
import JSONText

/// The reader of JSON, and what is read of it: whatever is understood is written as it was read.
struct JSONFuzz: FuzzSubject {
  let samples: FuzzSamples

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let all = samples.all
    let value = random.mutated(random.element(all), donors: all)
    return FuzzInput(bytes: random.chance(0.3) ? value.bytes : random.mutated(value.bytes))
  }

  func accepts(_ bytes: [UInt8]) throws -> Bool {
    guard let json = try? JSONValue(parsing: bytes) else { return false }
    guard let again = try? JSONValue(parsing: json.bytes), again == json else {
      throw FuzzFinding("What was read is not what is written of it.")
    }
    let payloads: [any JSONPayload.Type] = [
      JWSTransactionDecodedPayload.self, JWSRenewalInfoDecodedPayload.self,
      JWSAppTransactionDecodedPayload.self, ResponseBodyV2DecodedPayload.self,
    ]
    for payload in payloads { try check(payload, json) }
    return true
  }

  private func check<Payload: JSONPayload>(_ type: Payload.Type, _ json: JSONValue) throws {
    guard let payload = try? type.init(json: json) else { return }
    guard let again = try? type.init(json: payload.json), again == payload else {
      throw FuzzFinding("A \(type) is not what is written of it.")
    }
    guard Set(payload.json.keys) == Set(json.keys) else {
      throw FuzzFinding("A \(type) has lost or invented a field.")
    }
  }
}
