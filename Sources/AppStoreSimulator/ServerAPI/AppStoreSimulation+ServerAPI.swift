import AppStore
package import JSONText
package import Subscriptions

import struct Foundation.Date

/// The App Store Server API.
extension AppStoreSimulation {
  /// Answers a request at one of Apple's two addresses, faults included.
  package func serverAPI(_ request: ServerAPIRequest, at endpoint: Environment) -> SimulatedAnswer {
    let clocks = [clock.now, Self.realNow]
    let bundleID = token(in: request.authorization).flatMap {
      apiKey.bundleID(in: $0, at: clocks)
    }
    return act { state in
      let fault = state.serverFaults.takeFault(at: state.now)
      let answer = state.serverAPI(request, of: bundleID, at: endpoint)
      guard let fault else { return answer }
      if case .tooManyRequests(let seconds) = fault {
        return AppStoreState.tooMany(until: state.now + .seconds(seconds))
      }
      return answer.with(fault)
    }
  }

  private static var realNow: Timestamp {
    Timestamp(milliseconds: Int64(Date.now.timeIntervalSince1970 * 1000))
  }

  private func token(in authorization: String?) -> String? {
    guard let authorization, authorization.lowercased().hasPrefix("bearer ") else { return nil }
    return String(authorization.dropFirst("bearer ".count))
  }

  /// Changes which requests to the App Store Server API fail.
  package func setServerFaults(_ change: @Sendable (inout FaultPlan) -> Void) {
    act { change(&$0.serverFaults) }
  }

  /// Changes how many requests the API takes: so many times Apple's number, nil: any number.
  package func setRateLimitScale(_ scale: Double?) {
    act { $0.limits.scale = scale }
  }

  /// What the app's server told about a charge with `Send Consumption Information`.
  package func consumptionReports(of transaction: TransactionID) throws -> [JSONValue] {
    try act { $0.charges[try $0.chargeNumber(transaction)].consumptionReports }
  }
}
