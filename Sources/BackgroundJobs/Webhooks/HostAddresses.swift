import Foundation
import NIOPosix

/// Finds the addresses of a host, as texts; none if it has none.
package typealias HostAddresses = @Sendable (_ host: String) async throws -> [String]

/// Asks the system, as everybody does.
///
/// The system may take its time, on a thread that is there for such waiting.
func systemAddresses(of host: String) async throws -> [String] {
  try await NIOThreadPool.singleton.runIfActive { Host(name: host).addresses }
}
