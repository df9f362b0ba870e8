import Hummingbird
import NIOCore
import Reports

/// `Resources/openapi.yaml`, with the parts of each report filled in from the reports.
enum OpenAPIDocument {
  static let text = String(decoding: PackageResources.openapi_yaml, as: UTF8.self)
    .split(separator: "# For each report:\n").map { part in
      let parts = part.split(separator: "# For each report, end.\n")
      // The first part has no template.
      guard parts.count == 2 else { return String(part) }
      return Report.all.map { $0.filledIn(parts[0]) }.joined() + parts[1]
    }.joined()
  /// Shared by all responses, so that clients that read slowly do not each hold a copy in memory.
  private static let body = ByteBuffer(string: text)

  static var response: Response { Response(body, as: "application/yaml") }
}

extension Report {
  fileprivate func filledIn(_ template: Substring) -> String {
    let title = name.split(separator: "-").map { $0.prefix(1).uppercased() + $0.dropFirst() }
    let parts = [
      "report": name, "Report": title.joined(), "label": label, "summary": summary,
      "parameters": parameters.map(reference).joined(separator: "\n        "),
      "columns": Self.schema(columns), "itemColumns": Self.schema(itemColumns),
    ]
    return parts.reduce(into: String(template)) { $0.replace("{\($1.key)}", with: $1.value) }
  }

  private func reference(_ parameter: ReportParameter) -> String {
    guard parameter == .column else {
      return "- $ref: \"#/components/parameters/report.\(parameter.rawValue)\""
    }
    let names = itemizedColumns.joined(separator: ", ")
    return "- { name: column, in: query, schema: { type: string, enum: [\(names)] }, "
      + "description: \"With `items`, only the items that this column counts.\" }"
  }

  private static func schema(_ columns: [ReportColumn]) -> String {
    let properties = columns.map {
      "\($0.name): { $ref: \"#/components/schemas/report.\($0.kind.rawValue)\" }"
    }
    return "{ type: object, required: [\(columns.map(\.name).joined(separator: ", "))], "
      + "properties: { \(properties.joined(separator: ", ")) } }"
  }
}
