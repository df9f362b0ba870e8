import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Hummingbird
import Intake
import JSONText
import LedgerStorage
import Reports
import Subscriptions
import Testing

@testable import HTTPAPI

/// The document describes what there is: no more, and no less.
struct OpenAPITests {
  let description = OpenAPIDescription.shared

  @Test func `the routes are those of the document, both ways`() async throws {
    try await TestAPI.run { api in
      let routes = api.api.routes().routes.map { "\($0.method.rawValue) \($0.path.description)" }
      let documented = OpenAPIDescription.shared.operations.map {
        "\($0.method.rawValue) \(Self.route(of: $0.path))"
      }
      #expect(documented.count > 10)
      #expect(routes.sorted() == Set(documented).sorted())
    }
  }

  /// The route of a path; all reports have one.
  private static func route(of path: String) -> String {
    path.hasPrefix("/v1/reports/") ? "/v1/reports/{name}" : path
  }

  @Test func `every report has its path, with its parameters and the columns of its rows`() throws {
    let paths = description.operations.map(\.path).filter { $0.hasPrefix("/v1/reports/") }
    #expect(paths == Report.all.map { "/v1/reports/\($0.name)" }.sorted())
    for report in Report.all {
      let operation = try #require(
        description.operations.first { $0.path == "/v1/reports/\(report.name)" }?.operation)
      let parameters = operation["parameters"]?.array?.map(description.resolved) ?? []
      let names = parameters.compactMap { $0["name"]?.string }
      #expect(
        names == ["Prefer", "format", "items", "limit"] + report.parameters.map(\.rawValue))
      let column = parameters.first { $0["name"] == "column" }?["schema"]
      #expect(values(column) == Set(report.itemizedColumns))
      let schema = operation["responses"]?["200"]?["content"]?["application/json"]?["schema"]
      let rows = schema.map(description.resolved)?["properties"]?["rows"]?["items"]?["anyOf"]
      let expected = [report.itemColumns, report.columns]
      #expect(rows?.array?.count == expected.count)
      for (row, columns) in zip(rows?.array?.map(description.resolved) ?? [], expected) {
        #expect(row["required"]?.array?.compactMap(\.string) == columns.map(\.name))
        #expect(row["properties"]?.members.map(\.key) == columns.map(\.name).sorted())
      }
    }
  }

  /// The server accepts what a client sends that fills in every default.
  @Test func `no parameter of a report has a default that is refused`() async throws {
    try await TestAPI.run { api in
      let description = OpenAPIDescription.shared
      for (_, path, operation) in description.operations where path.hasPrefix("/v1/reports/") {
        let parameters = operation["parameters"]?.array?.map(description.resolved) ?? []
        let defaults = parameters.compactMap { parameter -> String? in
          guard let name = parameter["name"]?.string, let value = parameter["schema"]?["default"]
          else { return nil }
          return "\(name)=\(value.string ?? String(decoding: value.bytes, as: UTF8.self))"
        }
        #expect(!defaults.isEmpty)
        let answer = try await api.get(path + "?" + defaults.joined(separator: "&"), as: .admin)
        #expect([200, 202].contains(answer.status), "\(path): \(answer)")
      }
    }
  }

  @Test func `the document is served, and says its version`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/openapi.yaml", as: .anonymous)
      #expect(answer.status == 200)
      #expect(answer.headers[.contentType] == "application/yaml")
      #expect(answer.text == OpenAPIDocument.text)
      #expect(answer.text.hasPrefix("openapi: 3.1.0"))
    }
  }

  @Test func `every answer that is an example is as its schema says`() throws {
    var checked = 0
    for (_, path, operation) in description.operations {
      for (status, response) in operation["responses"]?.members ?? [] {
        for (type, content) in description.resolved(response)["content"]?.members ?? [] {
          guard type.hasSuffix("json") else { continue }
          let schema = try #require(content["schema"], "\(path) \(status)")
          let examples = description.examples(of: content)
          #expect(!examples.isEmpty || (Int(status) ?? 0) >= 400, "\(path) \(status)")
          for example in examples {
            #expect(description.faults(of: example, schema, at: path) == [])
            checked += 1
          }
        }
      }
      if let content = operation["requestBody"]?["content"]?["application/json"] {
        let examples = description.examples(of: content)
        #expect(!examples.isEmpty, "\(path)")
        for example in examples {
          #expect(description.faults(of: example, content["schema"] ?? .null, at: path) == [])
          checked += 1
        }
      }
    }
    #expect(checked > 20)
  }

  @Test func `what is pushed is what the feed has`() throws {
    let content = try #require(
      description.document["webhooks"]?["event"]?["post"]?["requestBody"]?["content"]?[
        "application/json"])
    #expect(content["schema"]?["$ref"]?.string == "#/components/schemas/Event")
    let examples = description.examples(of: content)
    #expect(!examples.isEmpty)
    for example in examples {
      #expect(description.faults(of: example, content["schema"] ?? .null, at: "webhook") == [])
    }
  }

  @Test func `every operation lists what can go wrong`() {
    for (method, path, operation) in description.operations {
      let statuses = Set(operation["responses"]?.members.map(\.key) ?? [])
      let isOpen = operation["security"]?.array?.isEmpty ?? false
      if !isOpen { #expect(statuses.isSuperset(of: ["401", "500", "503"]), "\(path)") }
      if operation["requestBody"] != nil {
        // Apple is promised 400 for whatever is wrong with a notification.
        let expected: Set = isOpen ? ["400", "401"] : ["400", "413", "415"]
        #expect(statuses.isSuperset(of: expected), "\(path)")
      }
      let role = AuthorizationTests.roles["\(method.rawValue) \(Self.route(of: path))"] ?? nil
      #expect(statuses.contains("403") == (role == .admin || role == .support), "\(path)")
      #expect(isOpen == (role == nil), "\(path)")
    }
  }

  @Test func `lists of values are those of the code`() throws {
    let problem = description.schema(named: "Problem")
    #expect(values(problem["properties"]?["code"]) == Set(ProblemCode.allCases.map(\.rawValue)))
    let source = URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../Sources/HTTPAPI/Problem.swift").standardizedFileURL
    let declared = try String(contentsOf: source, encoding: .utf8)
      .matches(of: /static let \w+ = Self.\s*"(\w+)"/).map { String($0.1) }
    #expect(declared == ProblemCode.allCases.map(\.rawValue))
    let warnings = description.schema(named: "VerifiedSubmission")["properties"]?["warnings"]
    #expect(values(warnings?["items"]) == Set(SubmissionWarning.allCases.map(\.rawValue)))
    let evidence = description.schema(named: "Evidence")["properties"]
    #expect(
      values(evidence?["ground"]) == Set(RenewalEvidence.Reason.allCases.map(\.rawValue)))
    #expect(
      values(description.schema(named: "Rule")) == Set(Decision.Rule.allCases.map(\.rawValue)))
    #expect(
      values(description.schema(named: "State"))
        == Set(Entitlement.State.allCases.map(\.rawValue)))
    #expect(
      values(description.schema(named: "ProductType"))
        == Set(ProductType.allCases.map(\.rawValue)))
    let event = description.schema(named: "ChargeEvent")["properties"]
    #expect(values(event?["kind"]) == Set(LedgerItem.Kind.allCases.map(\.rawValue)))
    #expect(
      values(event?["source"]?["properties"]?["kind"])
        == Set(EntrySource.Kind.allCases.map(\.rawValue)))
    let kinds = Set(LedgerEvent.Kind.allCases.map(\.rawValue))
    let mapping = description.schema(named: "Event")["discriminator"]?["mapping"]
    #expect(Set(mapping?.members.map(\.key) ?? []) == kinds)
    for (kind, reference) in mapping?.members ?? [] {
      let parts = description.resolved(["$ref": reference])["allOf"]?.array
      #expect(values(parts?.last?["properties"]?["type"]) == [kind])
    }
    let other = description.schema(named: "OtherEvent")["allOf"]?[1]["properties"]?["type"]
    #expect(values(other?["not"]) == kinds)
    #expect(
      values(description.schema(named: "Counterpart"))
        == Set([EventData.Counterpart.anotherAccount, .noAccount].map(\.rawValue)))
    let action = description.schema(named: "AdministratorAction")["properties"]
    #expect(
      values(action?["action"]) == Set(AdministratorAction.Action.allCases.map(\.rawValue)))
    let order = description.schema(named: "Order")["properties"]
    #expect(values(order?["status"]) == Set(PurchaseOrder.Status.allCases.map(\.rawValue)))
  }

  @Test(arguments: LedgerEvent.Kind.allCases)
  func `every kind of event has its example`(_ kind: LedgerEvent.Kind) throws {
    let example = try #require(description.exampleEvents[kind.rawValue])
    #expect(example["type"]?.string == kind.rawValue)
    #expect(example["account_id"]?.string != nil)
    #expect(example["data"]?.members.isEmpty == false)
  }

  private func values(_ schema: JSONValue?) -> Set<String> {
    Set(schema?["enum"]?.array?.compactMap(\.string) ?? [])
  }

  @Test func `the limits are those of the code`() {
    let schema = description.schema(named: "SignedSubmission")
    #expect(
      description.schema(named: "ReceiptSubmission")["properties"]?["receipt_data"]?["maxLength"]?
        .integer
        == Int64(ReceiptRequest.maximumReceiptLength))
    for field in [SignedDataField.transactions, .renewalInfo] {
      #expect(
        schema["properties"]?[field.name]?["maxItems"]?.integer
          == Int64(SignedDataField.maximumCount))
    }
    #expect(
      schema["properties"]?["signed_transactions"]?["description"]?.string?
        .contains("up to \(SignedDataField.maximumTotalLength) characters") == true)
    #expect(
      description.schema(named: "JWS")["maxLength"]?.integer
        == Int64(SignedDataField.maximumLength))
    let accounts = description.schema(named: "EntitlementQuery")
    #expect(
      accounts["properties"]?["account_ids"]?["maxItems"]?.integer
        == Int64(EntitlementController.maximumAccounts))
    #expect(
      description.schema(named: "AccountID")["maxLength"]?.integer
        == Int64(TextField.accountID.maximumLength))
    #expect(
      description.schema(named: "TransactionID")["maxLength"]?.integer
        == Int64(TextField.transactionID.maximumLength))
    #expect(
      description.schema(named: "Reason")["maxLength"]?.integer
        == Int64(TextField.reason.maximumLength))
    let limit = description.document["components"]?["parameters"]?["Limit"]?["schema"]
    #expect(limit?["default"]?.integer == Int64(Page.defaultLimit))
    #expect(limit?["maximum"]?.integer == Int64(Page.maximumLimit))
    let feed = description.operations.first { $0.path == "/v1/events" }?.operation
    let wait = feed?["parameters"]?.array?.first { $0["name"] == "wait" }?["schema"]
    #expect(wait?["maximum"]?.integer == Int64(EventController.longestWaitSeconds))
  }

  @Test func `the checker finds what is wrong`() throws {
    let schema = description.schema(named: "Account")
    let right: JSONValue = [
      "account_id": "4711", "app_account_token": "9b2f2c5e-1a7c-4a53-8f57-2f64d2a0a6b1",
      "created_at": "2026-11-21T09:30:00.000Z",
    ]
    #expect(description.faults(of: right, schema, at: "") == [])
    let wrong: [(String, JSONValue?)] = [
      ("account_id", nil), ("account_id", 4711), ("created_at", "2026-11-21T09:30:00Z"),
      ("app_account_token", "9B2F2C5E-1A7C-4A53-8F57-2F64D2A0A6B1"), ("more", "than said"),
    ]
    for (key, value) in wrong {
      var members = right.members.filter { $0.key != key }
      if let value { members.append((key, value)) }
      let changed = JSONValue.object(members.map { .init(key: $0.key, value: $0.value) })
      #expect(description.faults(of: changed, schema, at: "").count == 1, "\(key)")
    }
  }
}
