import ServiceLifecycle

/// Runs a body until the program shuts down, and then cancels it.
package struct UntilShutdown: Service, CustomStringConvertible {
  package let description: String
  private let body: @Sendable () async -> Void

  package init(_ name: String, _ body: @escaping @Sendable () async -> Void) {
    description = name
    self.body = body
  }

  package func run() async throws {
    await cancelWhenGracefulShutdown { await body() }
  }
}

extension Task where Failure == any Error {
  /// The result, or nil if it takes longer than `patience`; the task goes on.
  package func result(within patience: Duration) async -> Result<Success, any Error>? {
    let (results, first) = AsyncStream.makeStream(
      of: Result<Success, any Error>.self, bufferingPolicy: .bufferingOldest(1))
    let waiter = Task<Void, Never> {
      first.yield(await result)
      first.finish()
    }
    let timer = Task<Void, Never> {
      try? await Task<Never, Never>.sleep(for: patience)
      first.finish()
    }
    defer {
      waiter.cancel()
      timer.cancel()
    }
    return await results.first { _ in true }
  }
}
