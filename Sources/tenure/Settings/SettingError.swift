import Foundation
import NIOCore

/// A setting that the program cannot start with: its name, what is wrong, and what would be right.
struct SettingError: Error, CustomStringConvertible {
  let name: String
  let fault: String

  var description: String { "\(name): \(fault)" }
}

/// Several faults in the settings, reported together.
struct SettingErrors: Error, CustomStringConvertible {
  let all: [any Error]

  /// One line per fault.
  var description: String {
    "\(all.count) settings are wrong:" + all.map { "\n  \($0)" }.joined()
  }

  /// The faults that an error stands for: itself, or each of several.
  static func faults(in error: any Error) -> [any Error] {
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
  init?(
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
