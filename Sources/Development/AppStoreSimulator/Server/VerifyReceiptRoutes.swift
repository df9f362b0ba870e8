import Hummingbird
import Subscriptions

struct VerifyReceiptRoutes {
  let simulation: AppStoreSimulation
  let delivery: AnswerDelivery

  /// Receipts can grow indefinitely in production; a real one of 15 years is far below this.
  private static let mostBodyBytes = 16 << 20

  func endpoints(_ environment: Subscriptions.Environment) -> RouteCollection<SimulatorContext> {
    let routes = RouteCollection(context: SimulatorContext.self)
    routes.post { request, context in
      var request = request
      let body = try await request.collectBody(upTo: Self.mostBodyBytes)
      let answer = simulation.verifyReceipt(body.readableBytesView, at: environment)
      return try await delivery.deliver(answer, to: request, on: context.channel)
    }
    routes.get { request, context in
      try await delivery.deliver(
        simulation.verifyReceiptWithoutPost(), to: request, on: context.channel)
    }
    return routes
  }
}
