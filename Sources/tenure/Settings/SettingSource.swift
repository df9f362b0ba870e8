import Configuration
import Foundation
import Secrets
import Synchronization
import SystemPackage

/// Reads settings by their names, from flags, the environment and a file, in this order.
struct SettingSource: Sendable {
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
  init(
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
  var unread: [String] {
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
  func string(_ name: String) throws -> String? {
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
  func secret(_ name: String) throws -> Secret<String>? {
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

  func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    guard let text = try string(name) else { return nil }
    guard let value = Int(text), range.contains(value) else {
      throw SettingError(
        name: name,
        fault: "\"\(text)\" is no number from \(range.lowerBound) to \(range.upperBound)")
    }
    return value
  }

  func flag(_ name: String) throws -> Bool? {
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
