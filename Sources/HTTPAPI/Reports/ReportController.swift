import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
package import Logging
import NIOCore
package import Reports
import Subscriptions

struct ReportController: Controller {
  let api: API

  static let csvType = "text/csv; charset=utf-8"

  func list(_ request: Request, context: APIContext) async throws -> Response {
    let definitions = try await api.reports.definitions()
    return Response(capacity: 8192) { json in
      json.objects("reports", Report.all) { json, report in
        json.member("name", report.name)
        json.member("summary", report.summary)
        json.member("definition", definitions[report] ?? report.summary)
        json.member("parameters", report.parameters.map(\.rawValue))
      }
    }
  }

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let report = try context.report()
    let query = request.query
    let accepted = ["format", "items", "limit"] + report.parameters.map(\.rawValue)
    for (name, _) in query.all(beginningWith: "") where !accepted.contains(name) {
      throw Problem.invalid(
        name, "is not accepted by this report: use \(accepted.joined(separator: ", "))")
    }
    let format = try Self.format(query)
    let choices = try ReportChoices(of: report, from: query)
    if format == .csv, choices.limit == nil {
      return Response(
        try await api.reports.file(of: report, choices, at: now()), logger: context.logger)
    }
    guard let table = try await table(of: report, choices, for: request) else {
      return Self.working
    }
    return Response(
      ByteBuffer(string: table.text(format)),
      as: format == .csv ? Self.csvType : "application/json")
  }

  /// The report; nil while it is being prepared.
  private func table(
    of report: Report, _ choices: ReportChoices, for request: Request
  ) async throws -> ReportTable? {
    let patience = request.headers.preferredWait ?? ReportCoordinator.patience
    switch await api.reportCoordinator.outcome(.table(report, choices), within: patience) {
    case .answered(.table(let table)): return table
    case .failed(let error): throw error
    case .answered, .working: return nil
    }
  }

  /// The same request finds the answer a little later.
  private static var working: Response {
    Response(status: .accepted, headers: [.retryAfter: "\(Problem.retryAfterSeconds)"]) { json in
      json.member("status", "working")
    }
  }

  /// Without tables, which are for terminals.
  private static func format(_ query: EncodedFields) throws -> ReportFormat {
    switch query["format"] {
    case nil, "json": .json
    case "csv": .csv
    default: throw Problem.invalid("format", "must be json or csv")
    }
  }
}

extension HTTPFields {
  private static let longestWait = 60

  /// The wait of `Prefer: wait=30` (https://www.rfc-editor.org/rfc/rfc7240#section-4.3).
  fileprivate var preferredWait: Duration? {
    let preferences = filter { $0.name.canonicalName == "prefer" && $0.value.isASCII }.flatMap {
      $0.value.lowercased().split { ",;".contains($0) }.map {
        $0.filter { !$0.isWhitespace }
      }
    }
    let seconds = preferences.lazy.compactMap { preference -> Int? in
      let parts = preference.split(separator: "=")
      return parts.count == 2 && parts[0] == "wait" ? Int(parts[1]) : nil
    }.first
    return seconds.map { .seconds(Swift.min(Swift.max($0, 0), Self.longestWait)) }
  }
}

extension APIContext {
  /// The report that the path names; throws a ``Problem`` for an unknown one.
  package func report() throws -> Report {
    guard let report = Report(exactly: try parameter(TextField(name: "name", maximumLength: 64)))
    else { throw Problem(.unknownReport, "No report with this name; see GET /v1/reports.") }
    return report
  }
}

extension ReportChoices {
  package init(of report: Report, from query: EncodedFields) throws {
    self.init()
    for parameter in ReportParameter.allCases {
      guard let text = query[parameter.rawValue]?.rawValue else { continue }
      try set(parameter, of: report, to: text)
    }
    listsItems = try query.flag("items") ?? listsItems
    limit = try query.integer("limit", in: Self.limitRange)
  }
}

extension Response {
  /// A file that is sent while it is read.
  ///
  /// If reading fails, the connection is closed without the end of the body, so that clients don't
  /// take the file for complete. Browsers save it under the name.
  package init(_ file: ReportFile, named name: String? = nil, logger: Logger) {
    let body = ResponseBody { writer in
      do {
        try await writer.write(ByteBuffer(string: file.head))
        while let lines = try await file.lines(logger) {
          try await writer.write(ByteBuffer(string: lines))
        }
      } catch {
        await file.close()
        throw error
      }
      try await writer.finish(nil)
    }
    self.init(status: .ok, headers: [.contentType: ReportController.csvType], body: body)
    if let name { headers[.contentDisposition] = "attachment; filename=\"\(name)\"" }
  }
}

extension ReportFile {
  /// The next lines; a failure is logged, unlike a client that disconnects.
  fileprivate func lines(_ logger: Logger) async throws -> String? {
    do {
      return try await next()
    } catch {
      logger.error("Reading a report failed while it was sent", metadata: ["error": "\(error)"])
      throw error
    }
  }
}
