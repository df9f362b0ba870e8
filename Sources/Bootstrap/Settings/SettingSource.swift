import Configuration
import Foundation
import NIOCore
package import Secrets
package import Subscriptions
import Synchronization
import SystemPackage

/// Reads settings by their names, from flags, the environment and a file, in this order.
package struct SettingSource: Sendable {
  private let flags: Secret<[String: String]>
  private let environment: Secret<EnvironmentVariablesProvider>
  private let file: Secret<EnvironmentVariablesProvider>?
  /// What the environment and the file name of Tenure's, whatever it is.
  private let given: Set<String>
  private let asked = AskedNames()

  /// - Parameters:
  ///   - flags: What the command line says, under the settings' names.
  ///   - environment: The environment of the process.
  ///   - file: The path of a file of `NAME=value` lines; nil for none.
  /// - Throws: ``SettingError`` for a file that can't be read.
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
        name: "--config",
        fault: "\(file ?? "") can't be read (\(error)): name a file of NAME=value lines")
    }
  }

  /// What is set for Tenure and nobody has asked for: mostly a name that was misspelt.
  package var unread: [String] {
    let names = asked.all
    return given.filter { name in
      name.hasPrefix("TENURE_") && !name.dropFirst("TENURE_".count).hasPrefix("TEST_")
        && !names.contains(name.hasSuffix("_FILE") ? String(name.dropLast(5)) : name)
        && !names.contains(name)
    }.sorted()
  }

  /// The value of a setting; nil if it is nowhere or empty.
  ///
  /// - Throws: ``SettingError`` if it is to come from a file that can't be read or is empty, is
  ///   given twice, or is an empty flag.
  package func string(_ name: String) throws -> String? {
    asked.insert(name)
    if let flag = flags.revealed[name] {
      guard !flag.isEmpty else {
        throw SettingError(name: name, fault: "its flag is empty: leave it out, or give a value")
      }
      return flag
    }
    return try string(name) { try environment.revealed.environmentValue(forName: $0) }
      ?? string(name) { try file?.revealed.environmentValue(forName: $0).map(Self.unquoted) }
  }

  /// The value of a setting that is never printed.
  package func secret(_ name: String) throws -> Secret<String>? {
    try string(name).map { Secret($0) }
  }

  private func string(_ name: String, _ read: (String) throws -> String?) throws -> String? {
    let value = try read(name).flatMap { $0.isEmpty ? nil : $0 }
    let path = try read(name + "_FILE").flatMap { $0.isEmpty ? nil : $0 }
    guard let path else { return value }
    guard value == nil else {
      throw SettingError(name: name, fault: "it and \(name)_FILE are both set: set one of them")
    }
    return try contents(of: path, for: name)
  }

  /// A value in a file can stand in double quotes, as in a shell.
  private static func unquoted(_ value: String) -> String {
    guard value.count >= 2, value.hasPrefix("\""), value.hasSuffix("\"") else { return value }
    return String(value.dropFirst().dropLast())
  }

  private func contents(of path: String, for name: String) throws -> String {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(
        name: name + "_FILE", fault: "\(path) can't be read: name a file that holds the secret")
    }
    let text = String(decoding: data, as: UTF8.self)
      .trimmingCharacters(in: .whitespacesAndNewlines)
    guard !text.isEmpty else {
      throw SettingError(
        name: name + "_FILE", fault: "\(path) is empty: name a file that holds the secret")
    }
    return text
  }

  package func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    guard let text = try string(name) else { return nil }
    guard let value = Int(text), range.contains(value) else {
      throw SettingError(
        name: name,
        fault: "\"\(text)\" is no number from \(range.lowerBound) to \(range.upperBound)")
    }
    return value
  }

  package func flag(_ name: String) throws -> Bool? {
    guard let text = try string(name) else { return nil }
    switch text.lowercased() {
    case "on", "true", "yes", "1": return true
    case "off", "false", "no", "0": return false
    default: throw SettingError(name: name, fault: "\"\(text)\" is neither on nor off")
    }
  }
}

/// The names that were asked for.
private final class AskedNames: Sendable {
  private let names = Mutex<Set<String>>([])

  var all: Set<String> { names.withLock(\.self) }

  func insert(_ name: String) {
    names.withLock { _ = $0.insert(name) }
  }
}

/// A setting that the program cannot start with: its name, what is wrong, and what would be right.
package struct SettingError: Error, CustomStringConvertible {
  package let name: String
  package let fault: String

  package var description: String { "\(name): \(fault)" }
}

/// Several faults in the settings, reported together.
package struct SettingErrors: Error, CustomStringConvertible {
  package let all: [any Error]

  /// One line per fault.
  package var description: String {
    "\(all.count) settings are wrong:" + all.map { "\n  \($0)" }.joined()
  }

  /// The faults that an error stands for: itself, or each of several.
  package static func faults(in error: any Error) -> [any Error] {
    (error as? SettingErrors)?.all ?? [error]
  }
}

extension SettingError {
  /// Why nothing can listen at an address; nil for an error that is about something else.
  ///
  /// - Parameters:
  ///   - host: The address.
  ///   - hostName: The setting that names it.
  ///   - port: The port.
  ///   - portName: The setting that names it.
  ///   - error: What kept the server from listening.
  package init?(
    listeningOn host: String, named hostName: String, port: Int, named portName: String,
    _ error: any Error
  ) {
    switch (error as? IOError)?.errnoCode {
    case EADDRINUSE:
      self.init(name: portName, fault: "\(port) is taken: name another, or 0 for a free one")
    case EACCES:
      self.init(name: portName, fault: "\(port) is for the system alone: name one above 1023")
    case EADDRNOTAVAIL:
      self.init(name: hostName, fault: "\(host) is no address of this machine")
    default:
      guard error is SocketAddressError else { return nil }
      self.init(name: hostName, fault: "\(host) is the address of no machine")
    }
  }
}

/// A clock that somebody else sets, for several processes at once: the time in milliseconds since
/// 1970, in a file.
///
/// It never runs backwards, and what can't be read as a time is not there yet.
package final class ClockFile: Sendable {
  private let path: String
  private let last: Mutex<Timestamp>

  /// - Parameter path: The file, which must hold a time already.
  /// - Throws: ``SettingError``.
  package init(path: String) throws {
    guard let time = Self.read(path) else {
      throw SettingError(
        name: "TENURE_CLOCK_FILE",
        fault: "\(path) can't be read: name a file that holds the milliseconds since 1970")
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
