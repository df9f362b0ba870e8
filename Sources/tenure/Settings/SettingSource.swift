import Configuration
import Foundation
import SystemPackage

/// Reads settings by their names, from flags, the environment and a file, in this order.
struct SettingSource: Sendable {
  private let flags: [String: String]
  private let providers: [EnvironmentVariablesProvider]

  /// - Parameters:
  ///   - flags: What the command line says, under the settings' names.
  ///   - environment: The environment of the process.
  ///   - file: The path of a file of `NAME=value` lines; nil for none.
  /// - Throws: ``SettingError`` for a file that can't be read.
  init(
    flags: [String: String] = [:],
    environment: [String: String] = ProcessInfo.processInfo.environment, file: String? = nil
  ) async throws {
    self.flags = flags
    var providers = [EnvironmentVariablesProvider(environmentVariables: environment)]
    if let file {
      do {
        providers.append(
          try await EnvironmentVariablesProvider(environmentFilePath: FilePath(file)))
      } catch {
        throw SettingError(
          name: "--config",
          fault: "\(file) can't be read (\(error)): name a file of NAME=value lines")
      }
    }
    self.providers = providers
  }

  /// The value of a setting; nil if it is nowhere or empty.
  ///
  /// - Throws: ``SettingError`` if it is to come from a file that can't be read, or is given twice.
  func string(_ name: String) throws -> String? {
    if let flag = flags[name] { return flag }
    for provider in providers {
      let value = try provider.environmentValue(forName: name).flatMap { $0.isEmpty ? nil : $0 }
      let path = try provider.environmentValue(forName: name + "_FILE").flatMap {
        $0.isEmpty ? nil : $0
      }
      switch (value, path) {
      case (let value?, nil): return value
      case (nil, let path?): return try contents(of: path, for: name)
      case (_?, _?):
        throw SettingError(name: name, fault: "it and \(name)_FILE are both set: set one of them")
      case (nil, nil): continue
      }
    }
    return nil
  }

  private func contents(of path: String, for name: String) throws -> String? {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(
        name: name + "_FILE", fault: "\(path) can't be read: name a file that holds the secret")
    }
    let text = String(decoding: data, as: UTF8.self)
      .trimmingCharacters(in: .whitespacesAndNewlines)
    return text.isEmpty ? nil : text
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
