import Foundation
import OpenTelemetryTraces
import Secrets

/// Where spans go, and of which requests.
struct TraceSettings: Sendable {
  var collector: SpanExporter.Collector
  /// Which share of the traces that begin here is recorded, 0 to 1.
  var ratio: Double
}

extension Settings {
  private static let tracesEndpoint = "TENURE_OTLP_ENDPOINT"
  private static let tracesHeaders = "TENURE_OTLP_HEADERS"
  private static let tracesRatio = "TENURE_TRACE_RATIO"

  /// Nil: there are no spans.
  static func traces(_ source: SettingSource) throws -> TraceSettings? {
    let headers = try source.string(tracesHeaders).map(Self.headers) ?? []
    let ratio = try source.string(tracesRatio).map(Self.ratio) ?? 1
    guard let address = try source.string(tracesEndpoint) else { return nil }
    guard let url = URL(string: address), let scheme = url.scheme?.lowercased(),
      ["http", "https"].contains(scheme), url.host()?.isEmpty == false, url.query() == nil,
      url.fragment() == nil
    else {
      throw SettingError(
        name: tracesEndpoint,
        fault:
          "it is no address of a collector: write one as in http://127.0.0.1:4318, to "
          + "which /v1/traces is added")
    }
    guard url.user() == nil, url.password() == nil else {
      // It is not repeated, for it holds a secret.
      throw SettingError(
        name: tracesEndpoint,
        fault: "an address holds no name and password: what the collector asks for belongs into "
          + tracesHeaders)
    }
    let base = address.hasSuffix("/") ? String(address.dropLast()) : address
    return TraceSettings(
      collector: SpanExporter.Collector(
        url: base + "/v1/traces", headers: headers),
      ratio: ratio)
  }

  /// Reads `name=value,name=value` with values percent-encoded, as OTEL_EXPORTER_OTLP_HEADERS has
  /// them.
  private static func headers(_ text: String) throws -> [(name: String, value: Secret<String>)] {
    try text.split(separator: ",").map { pair in
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        .map { $0.trimmingCharacters(in: .whitespaces) }
      guard parts.count == 2, let value = parts[1].removingPercentEncoding,
        !parts[0].isEmpty, parts[0].allSatisfy(isOfFieldName),
        value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
      else {
        // It may hold a secret, which is not repeated.
        throw SettingError(
          name: tracesHeaders,
          fault: "it is no list of header fields: write name=value,name=value, with values "
            + "percent-encoded")
      }
      return (parts[0], Secret(value))
    }
  }

  /// Whether a field's name may hold a character, by section 5.6.2 of RFC 9110.
  private static func isOfFieldName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber)
      || "!#$%&'*+-.^_`|~".contains(character)
  }

  private static func ratio(_ text: String) throws -> Double {
    guard let ratio = Double(text), (0...1).contains(ratio) else {
      throw SettingError(
        name: tracesRatio,
        fault: "\"\(text)\" is no share: write a number from 0, for none, to 1, for all")
    }
    return ratio
  }
}
