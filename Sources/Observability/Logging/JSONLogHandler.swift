import Foundation
import JSONText
package import Logging

/// Logs one JSON object per line: time, level, message, logger, then the metadata by name.
package struct JSONLogHandler: LogHandler {
  private static let timeFormat = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
  private static let reserved: Set = ["time", "level", "message", "logger"]

  let label: String
  let write: @Sendable (String) -> Void
  package var logLevel = Logger.Level.info
  package var metadata: Logger.Metadata = [:]
  package var metadataProvider: Logger.MetadataProvider?

  /// - Parameter write: Called with each line, including its line feed.
  package init(
    label: String, metadataProvider: Logger.MetadataProvider?,
    write: @escaping @Sendable (String) -> Void = { FileHandle.standardError.write(Data($0.utf8)) }
  ) {
    (self.label, self.metadataProvider, self.write) = (label, metadataProvider, write)
  }

  package subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  package func log(event: LogEvent) {
    let metadata =
      metadata
      .merging(metadataProvider?.get() ?? [:]) { $1 }
      .merging(event.metadata ?? [:]) { $1 }
    var json = JSONWriter(capacity: 256)
    json.object { json in
      json.member("time", Date.now.formatted(Self.timeFormat))
      json.member("level", event.level.rawValue)
      json.member("message", "\(event.message)")
      json.member("logger", label)
      for (key, value) in metadata.sorted(by: { $0.key < $1.key }) {
        json.member(Self.name(key), "\(value)")
      }
    }
    write(json.text + "\n")
  }

  /// Removes characters that need escapes, and prefixes reserved names.
  private static func name(_ key: String) -> String {
    let plain = key.filter { $0.isASCII && ($0.isLetter || $0.isNumber || "._-".contains($0)) }
    return reserved.contains(plain) ? "metadata.\(plain)" : plain
  }
}
