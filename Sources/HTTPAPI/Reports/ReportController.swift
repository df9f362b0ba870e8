import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
package import Logging
import NIOCore
package import Reports
import Subscriptions

/// What operators look at.
struct ReportController: Sendable {
  let reports: ReportReader
  let desk: ReportDesk
  let now: @Sendable () -> Timestamp

  /// The forms that HTTP has; tables are for terminals.
  private enum Format: String, CaseIterable {
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
      case .csv: ReportController.csvType
      }
    }
  }

  static let csvType = "text/csv; charset=utf-8"

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    Response(ReportList(definitions: try await reports.definitions()))
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    guard let report = Report(exactly: try context.parameter(.reportName)) else {
      throw Problem(.unknownReport, "There is no such report; GET /v1/reports lists them.")
    }
    let query = Query(request.uri)
    let format = try Self.format(query)
    do {
      let choices = try ReportChoices(of: report, from: query)
      if format == .csv, choices.limit == nil {
        return Response(
          try await reports.file(of: report, choices, at: now()), logger: context.logger)
      }
      guard let table = try await table(of: report, choices, for: request) else {
        return Self.working
      }
      return Response(
        status: .ok, headers: [.contentType: format.mediaType],
        body: ResponseBody(byteBuffer: ByteBuffer(bytes: table.text(format.report).utf8)))
    } catch let fault as ReportFault {
      throw Problem.invalid(fault.parameter.rawValue, fault.text)
    }
  }

  /// The report; nil: it is still being made.
  private func table(
    of report: Report, _ choices: ReportChoices, for request: Request
  ) async throws -> ReportTable? {
    let patience = request.headers.preferredWait ?? ReportDesk.patience
    switch await desk.outcome(.table(report, choices), within: patience) {
    case .answered(.table(let table)): return table
    case .failed(let error): throw error
    case .answered, .working: return nil
    }
  }

  /// Whoever asks the same again a little later finds the answer.
  private static var working: Response {
    var json = JSONWriter(capacity: 32)
    json.object { $0.member("status", "working") }
    return Response(
      status: .accepted,
      headers: [.contentType: "application/json", .retryAfter: "\(Problem.retryAfterSeconds)"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: json.bytes)))
  }

  private static func format(_ query: Query?) throws -> Format {
    guard let text = query?["format"] else { return .json }
    guard let format = Format(exactly: text.rawValue) else {
      throw Problem.invalid("format", "must be json or csv")
    }
    return format
  }
}

extension HTTPFields {
  /// No answer is worth a longer wait.
  private static let longestWait = 60

  /// How long a client prefers to wait before it is told that it takes longer: `Prefer: wait=30`.
  ///
  /// Nil: it does not say. See <https://www.rfc-editor.org/rfc/rfc7240#section-4.3>.
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

extension ReportChoices {
  /// Reads what a request chooses of a report.
  ///
  /// - Throws: A ``Problem`` that names the parameter: for a value that it does not have, and for
  ///   what is nothing to choose of this report, since an answer that left it out would be another
  ///   one.
  package init(of report: Report, from query: Query?) throws {
    self.init()
    guard let query else { return }
    for parameter in ReportParameter.allCases
    where query[parameter.rawValue] != nil && !report.parameters.contains(parameter) {
      throw Problem.invalid(parameter.rawValue, "is nothing to choose of this report")
    }
    from = try query.day("from")
    to = try query.day("to")
    bucket = try query["bucket"].map { text in
      guard let bucket = Bucket(exactly: text.rawValue) else {
        throw Problem.invalid("bucket", "must be day, week or month")
      }
      return bucket
    }
    timeZone = query["time_zone"]?.rawValue ?? timeZone
    product = query["product"]?.rawValue
    environment = try query.environment() ?? environment
    includesFamilyShared = try query.flag("include_family_shared") ?? includesFamilyShared
    includesTrials = try query.flag("include_trials") ?? includesTrials
    includesGrants = try query.flag("include_grants") ?? includesGrants
    splitsByProduct = try query.flag("by_product")
    reportingCurrency = query["reporting_currency"]?.rawValue
    knownAt = try query.moment("known_at")
    asOf = try query.moment("as_of")
    days = try query.integer("days", in: Self.dayRange) ?? days
    period = try query.integer("period", in: Self.periodRange)
    includesSandbox = try query.flag("include_sandbox") ?? includesSandbox
    listsItems = try query.flag("items") ?? listsItems
    column = query["column"]?.rawValue
    limit = try query.integer("limit", in: Self.limitRange)
  }
}

extension Query {
  fileprivate func day(_ name: String) throws -> CalendarDate? {
    try self[name].map { text in
      guard let day = CalendarDate(iso8601: text.rawValue) else {
        throw Problem.invalid(name, "must be a day of ISO 8601, as in 2026-11-21")
      }
      return day
    }
  }
}

extension Response {
  /// A report as a file, which is sent while it is read.
  ///
  /// What can't be sent to its end is no file: the connection is closed then, without the mark
  /// that ends a body, so that nobody takes it for all there is.
  ///
  /// - Parameters:
  ///   - file: The file, of which nothing has been sent.
  ///   - name: What a browser calls it; nil: it is not for a browser.
  ///   - logger: Told when there is no end.
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
    self.init(
      status: .ok, headers: [.contentType: ReportController.csvType], body: body)
    if let name { headers[.contentDisposition] = "attachment; filename=\"\(name)\"" }
  }
}

extension ReportFile {
  /// The next lines; that the client went away is nothing to be logged, and that this fails is.
  fileprivate func lines(_ logger: Logger) async throws -> String? {
    do {
      return try await next()
    } catch {
      logger.error("A report broke off while it was sent", metadata: ["error": "\(error)"])
      throw error
    }
  }
}
