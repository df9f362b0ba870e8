import Configuration
import Foundation
import NIOCore
package import Secrets
package import Subscriptions
import Synchronization
import SystemPackage

/// Reads settings from flags, then the environment, then a file.
package final class SettingSource: Sendable {
  private let flags: Secret<[String: String]>
  private let environment: Secret<EnvironmentVariablesProvider>
  private let file: Secret<EnvironmentVariablesProvider>?
  /// All names in the environment and the file.
  private let given: Set<String>
  private let asked = Mutex<Set<String>>([])

  /// - Throws: ``SettingError`` if the file, of `NAME=value` lines, can't be read.
  package init(
    flags: [String: String] = [:],
    environment: [String: String] = ProcessInfo.processInfo.environment, file: String? = nil
  ) async throws {
    self.flags = Secret(flags)
    self.environment = Secret(EnvironmentVariablesProvider(environmentVariables: environment))
    let lines = file.flatMap { try? String(contentsOfFile: $0, encoding: .utf8) } ?? ""
    let names = lines.matches(of: /(?m)^\s*(\w+)\s*=/).map { String($0.1) }
    given = Set(environment.keys).union(names)
    do {
      self.file =
        if let file {
          Secret(try await EnvironmentVariablesProvider(environmentFilePath: FilePath(file)))
        } else { nil }
    } catch {
      throw SettingError(
        "--config", "\(file ?? "") can't be read as a file of NAME=value lines: \(error)")
    }
  }

  /// Names that begin with `TENURE_` and were never read, each with the nearest one that was.
  package var unread: [(name: String, nearest: String?)] {
    let names = asked.withLock(\.self)
    return given.filter { name in
      name.hasPrefix("TENURE_") && !name.dropFirst("TENURE_".count).hasPrefix("TEST_")
        && !names.contains(name.hasSuffix("_FILE") ? String(name.dropLast(5)) : name)
        && !names.contains(name)
    }.sorted().map { ($0, $0.nearest(in: names)) }
  }

  /// The value of a setting; nil if it is unset or empty.
  ///
  /// - Throws: ``SettingError`` for an empty flag, an unreadable or empty `NAME_FILE`, or if both
  ///   `NAME` and `NAME_FILE` are set.
  package func string(_ name: String) throws -> String? {
    asked.withLock { _ = $0.insert(name) }
    if let flag = flags.revealed[name] {
      guard !flag.isEmpty else {
        throw SettingError(name, "the option must not be empty")
      }
      return flag
    }
    return try string(name) { try environment.revealed.environmentValue(forName: $0) }
      ?? string(name) { try file?.revealed.environmentValue(forName: $0).map(Self.unquoted) }
  }

  package func secret(_ name: String) throws -> Secret<String>? {
    try string(name).map { Secret($0) }
  }

  private func string(_ name: String, _ read: (String) throws -> String?) throws -> String? {
    let value = try read(name).flatMap { $0.isEmpty ? nil : $0 }
    let path = try read(name + "_FILE").flatMap { $0.isEmpty ? nil : $0 }
    guard let path else { return value }
    guard value == nil else {
      throw SettingError(name, "\(name)_FILE is set too: set only one of them")
    }
    return try contents(of: path, for: name)
  }

  /// Removes the double quotes around a value, as a shell does.
  private static func unquoted(_ value: String) -> String {
    guard value.count >= 2, value.hasPrefix("\""), value.hasSuffix("\"") else { return value }
    return String(value.dropFirst().dropLast())
  }

  private func contents(of path: String, for name: String) throws -> String {
    let expected = "a file with the value"
    let text = try Self.contents(of: path, for: name + "_FILE", expected)
      .trimmingCharacters(in: .whitespacesAndNewlines)
    guard !text.isEmpty else {
      throw SettingError(name + "_FILE", "\(path) is empty: must be \(expected)")
    }
    return text
  }

  static func contents(of path: String, for name: String, _ expected: String) throws -> String {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(name, "\(path) can't be read: must be \(expected)")
    }
    return String(decoding: data, as: UTF8.self)
  }

  /// The elements of a comma-separated list, without spaces around them.
  func list(_ name: String) throws -> [String]? {
    try string(name)?.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) }
  }

  package func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    try value(name, "a number from \(range.lowerBound) to \(range.upperBound)") { text in
      Int(text).flatMap { range.contains($0) ? $0 : nil }
    }
  }

  /// Reads a number of bytes such as `64MB` (of 2^20), or 0.
  func bytes(_ name: String, atLeast least: Int, atMost most: Int) throws -> Int? {
    try value(name, "0 or a number of MB or GB such as 64MB, at most \(most >> 30)GB") { text in
      guard text != "0" else { return 0 }
      let size = text.lowercased().hasSuffix("mb") ? 1 << 20 : 1 << 30
      guard ["mb", "gb"].contains(text.suffix(2).lowercased()), let number = Int(text.dropLast(2)),
        number > 0, number <= most / size, number * size >= least
      else { return nil }
      return number * size
    }
  }

  /// Reads the name of one of an enumeration's cases, without regard to case.
  func choice<Choice: RawRepresentable<String> & CaseIterable>(_ name: String) throws -> Choice? {
    let names = Choice.allCases.map(\.rawValue).joined(separator: ", ")
    return try value(name, "one of \(names)") { Choice(rawValue: $0.lowercased()) }
  }

  package func flag(_ name: String) throws -> Bool? {
    try value(name, "on or off") { text in
      switch text.lowercased() {
      case "on", "true", "yes", "1": true
      case "off", "false", "no", "0": false
      default: nil
      }
    }
  }

  /// Reads a duration such as `30d`, from one unit to `longest`.
  func duration(
    _ name: String, in units: DurationUnit..., atMost longest: Duration, or word: String? = nil,
    example: String
  ) throws -> Duration? {
    func most(_ unit: DurationUnit) -> Int { Int((longest / unit.length).rounded()) }
    let names = units.map { "\($0)" }.joined(separator: " or ")
    let expected =
      (word.map { "\($0) or " } ?? "")
      + "a number of \(names) such as \(example), at most \(most(units[0]))\(units[0].rawValue)"
    return try value(name, expected) { text -> Duration?? in
      let text = text.lowercased()
      if text == word { return .some(nil) }
      guard let unit = text.last.flatMap(DurationUnit.init(rawValue:)), units.contains(unit),
        let number = Int(text.dropLast()), (1...most(unit)).contains(number)
      else { return nil }
      return unit.length * number
    } ?? nil
  }

  /// Reads a setting; `read` returns nil for a text that is not `expected`.
  func value<Value>(
    _ name: String, _ expected: String, _ read: (String) -> Value?
  ) throws -> Value? {
    guard let text = try string(name) else { return nil }
    guard let value = read(text) else {
      throw SettingError(name, "must be \(expected) (got \"\(text)\")")
    }
    return value
  }
}

enum DurationUnit: Character {
  case days = "d"
  case hours = "h"
  case seconds = "s"

  fileprivate var length: Duration {
    switch self {
    case .days: .days(1)
    case .hours: .hours(1)
    case .seconds: .seconds(1)
    }
  }
}

/// An invalid setting that prevents a program from starting.
package struct SettingError: Error, CustomStringConvertible {
  package let name: String
  /// The problem and the accepted values; never the value of a secret.
  package let fault: String

  package init(_ name: String, _ fault: String) {
    (self.name, self.fault) = (name, fault)
  }

  package var description: String { "\(name): \(fault)" }

  /// Makes a value of a setting, and adds the setting's name to an error.
  static func naming<Value>(
    _ name: String, _ prefix: String = "", _ make: () throws -> Value
  ) throws -> Value {
    do {
      return try make()
    } catch {
      throw SettingError(name, "\(prefix)\(error)")
    }
  }
}

package struct SettingErrors: Error, CustomStringConvertible {
  package let all: [any Error]

  package var description: String {
    "\(all.count) settings are invalid:" + all.map { "\n  \($0)" }.joined()
  }

  /// The errors that a ``SettingErrors`` holds, or else the error itself.
  package static func faults(in error: any Error) -> [any Error] {
    (error as? SettingErrors)?.all ?? [error]
  }
}

extension SettingError {
  /// Explains why a server can't listen, by the setting; nil if `error` has another cause.
  package init?(
    listeningOn host: String, named hostName: String, port: Int, named portName: String,
    _ error: any Error
  ) {
    switch (error as? IOError)?.errnoCode {
    case EADDRINUSE:
      self.init(portName, "\(port) is in use: set another port, or 0 for a free one")
    case EACCES:
      self.init(portName, "\(port) is reserved for the system: set a port above 1023")
    case EADDRNOTAVAIL:
      self.init(hostName, "\(host) is not an address of this machine")
    default:
      guard error is SocketAddressError else { return nil }
      self.init(hostName, "\(host) is not an address")
    }
  }
}

/// A clock that a file sets for several processes, in milliseconds since 1970; never runs
/// backwards, and ignores a file that is incomplete.
package final class ClockFile: Sendable {
  private let path: String
  private let last: Mutex<Timestamp>

  /// - Throws: ``SettingError`` if the file does not contain a time.
  package init(path: String) throws {
    guard let time = Self.read(path) else {
      throw SettingError(
        "TENURE_CLOCK_FILE",
        "\(path) can't be read: must be a file with the milliseconds since 1970")
    }
    self.path = path
    last = Mutex(time)
  }

  package var now: Timestamp {
    let time = Self.read(path)
    return last.withLock {
      if let time { $0 = max($0, time) }
      return $0
    }
  }

  private static func read(_ path: String) -> Timestamp? {
    FileManager.default.contents(atPath: path)
      .flatMap { Int64(String(decoding: $0, as: UTF8.self).trimmingCharacters(in: .newlines)) }
      .map(Timestamp.init(milliseconds:))
  }
}
