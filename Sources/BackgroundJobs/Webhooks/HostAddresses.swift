import NIOCore
import NIOPosix

/// Finds the addresses of a host, as texts; none if it has none.
package typealias HostAddresses = @Sendable (_ host: String) async throws -> [String]

/// Asks the system, as everybody does.
///
/// Foundation's `Host` would also ask for the name of each address, which can take many seconds
/// where nobody answers such questions.
///
/// - Parameter host: Its name.
/// - Returns: The addresses in one order, whatever order DNS gives them in, so that one connection
///   serves many events.
/// - Throws: What the system says.
func systemAddresses(of host: String) async throws -> [String] {
  let resolver = NIORandomizedDNSResolver(loop: MultiThreadedEventLoopGroup.singleton.next())
  // One look-up finds both kinds; each has its future.
  let version6 = resolver.initiateAAAAQuery(host: host, port: 0)
  do {
    let found = try await resolver.initiateAQuery(host: host, port: 0).get() + version6.get()
    return found.compactMap(\.ipAddress).sorted()
  } catch is SocketAddressError.UnknownHost {
    return []
  }
}
