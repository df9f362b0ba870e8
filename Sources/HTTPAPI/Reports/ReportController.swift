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
    Response(ReportList())
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    guard let report = Report(rawValue: try context.parameter(.reportName)) else {
      throw Problem(.unknownReport, "There is no such report; GET /v1/reports lists them.")
    }
    let query = Query(request.uri)
    let format = try Self.format(query)
    let table = try await reports.table(of: report, try Self.choices(query), at: now())
    return Response(
      status: .ok, headers: [.contentType: format.mediaType],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: table.text(format.report).utf8)))
  }

  private static func format(_ query: Query?) throws -> Format {
    guard let text = query?["format"] else { return .json }
    guard let format = Format(rawValue: text) else {
      throw Problem.invalid("format", "must be json or csv")
    }
    return format
  }

  private static func choices(_ query: Query?) throws -> ReportChoices {
    var choices = ReportChoices()
    guard let query else { return choices }
    choices.days = try query.integer("days", in: ReportChoices.dayRange) ?? choices.days
    choices.limit = try query.integer("limit", in: ReportChoices.limitRange) ?? choices.limit
    choices.includesSandbox = try query.flag("include_sandbox") ?? choices.includesSandbox
    choices.listsItems = try query.flag("items") ?? choices.listsItems
    return choices
  }
}

extension TextField {
  fileprivate static let reportName = TextField(name: "name", maximumLength: 64)
}

private struct ReportList: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.key("reports")
      json.array(Report.allCases) { json, report in
        json.object { json in
          json.member("name", report.rawValue)
          json.member("summary", report.summary)
        }
      }
    }
  }
}
