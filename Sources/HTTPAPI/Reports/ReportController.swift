import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import Reports
import Subscriptions

/// What operators look at.
struct ReportController: Sendable {
  let reports: ReportReader
  let now: @Sendable () -> Timestamp

  /// The forms that HTTP has; tables are for terminals.
  private enum Format: String {
    case json
    case csv

    var report: ReportFormat {
      switch self {
      case .json: .json
      case .csv: .csv
      }
    }

    var mediaType: String {
      switch self {
      case .json: "application/json"
      case .csv: "text/csv; charset=utf-8"
      }
    }
  }

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    Response(ReportList(definitions: try await reports.definitions()))
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    guard let report = Report(rawValue: try context.parameter(.reportName)) else {
      throw Problem(.unknownReport, "There is no such report; GET /v1/reports lists them.")
    }
    let query = Query(request.uri)
    let format = try Self.format(query)
    do {
      let choices = try ReportChoices(of: report, from: query)
      let table = try await reports.table(of: report, choices, at: now())
      return Response(
        status: .ok, headers: [.contentType: format.mediaType],
        body: ResponseBody(byteBuffer: ByteBuffer(bytes: table.text(format.report).utf8)))
    } catch let fault as ReportFault {
      throw Problem.invalid(fault.parameter.rawValue, fault.text)
    }
  }

  private static func format(_ query: Query?) throws -> Format {
    guard let text = query?["format"] else { return .json }
    guard let format = Format(rawValue: text) else {
      throw Problem.invalid("format", "must be json or csv")
    }
    return format
  }
}

extension TextField {
  fileprivate static let reportName = TextField(name: "name", maximumLength: 64)
}

private struct ReportList: JSONWritable {
  let definitions: [Report: String]

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.key("reports")
      json.array(Report.allCases) { json, report in
        json.object { json in
          json.member("name", report.rawValue)
          json.member("summary", report.summary)
          json.member("definition", definitions[report] ?? report.summary)
          json.key("parameters")
          json.array(report.parameters) { json, parameter in json.write(parameter.rawValue) }
        }
      }
    }
  }
}
