import Foundation
import Testing

@testable import Postgres

@Suite struct ReactorTests {
  @PostgresLoop
  private final class Source: EventSource {
    private(set) var isReady = false

    func ready(toRead: Bool, toWrite: Bool) { isReady = true }
    func flush() {}
  }

  /// The socket of a broken connection is closed by libpq, and its number may be the next one's.
  @PostgresLoop
  @Test func whoseDescriptorIsAnothersTakesNothingFromIt() async throws {
    let pipe = Pipe()
    let descriptor = pipe.fileHandleForReading.fileDescriptor
    let (old, new) = (Source(), Source())
    Reactor.shared.watch(old, descriptor: descriptor)
    Reactor.shared.watch(new, descriptor: descriptor)
    Reactor.shared.unwatch(old, descriptor: descriptor)
    try pipe.fileHandleForWriting.write(contentsOf: Data([1]))
    let isReceived = try await eventually { new.isReady }
    Reactor.shared.unwatch(new, descriptor: descriptor)
    #expect(isReceived)
    #expect(!old.isReady)
  }
}
