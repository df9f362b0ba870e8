import Subscriptions

/// What each `status` of verifyReceipt means for us: one row per status.
///
/// See https://developer.apple.com/documentation/appstorereceipts/status. A status says something
/// about a receipt, or about Apple, or about our configuration; only the first kind may ever take a
/// receipt out of the queue.
enum VerifyReceiptStatus: Hashable {
  /// The body holds the decoded receipt.
  case verified
  /// The receipt belongs to the other environment: ask there.
  case elsewhere(Environment)
  /// The password is not the shared secret of the receipt's app.
  case wrongSecret
  /// Not a receipt that proves anything.
  case rejected(String)
  /// Nothing is known yet.
  case retry(String)
  /// Usually the receipt's fault and sometimes Apple's: a few times, then rejected.
  case limitedRetry(String)
  /// Our request or configuration is wrong: nothing is said about the receipt.
  case misconfigured(String)

  /// `isRetryable` is Apple's `is-retryable`, which comes with 21100 to 21199 only.
  init(_ status: Int, isRetryable: Bool?) {
    self =
      switch status {
      case 0: .verified
      case 21000: .misconfigured("Apple did not see a POST request: something between rewrites it")
      case 21002: .limitedRetry("Apple finds the receipt malformed, or is in trouble")
      case 21003: .rejected("Apple could not authenticate the receipt")
      case 21004: .wrongSecret
      case 21005: .retry("Apple's receipt server is not available at present")
      // Valid, but the subscription has expired: an old receipt's way of saying so, with the body.
      case 21006: .verified
      case 21007: .elsewhere(.sandbox)
      case 21008: .elsewhere(.production)
      case 21009: .retry("Apple had an internal data access error")
      case 21010: .rejected("Apple does not know the customer's account, or has deleted it")
      case 21100...21199 where isRetryable == false:
        .rejected("Apple had an internal data access error and says that retrying is no use")
      case 21100...21199: .retry("Apple had an internal data access error")
      // 21001 is no longer sent, and so means as little as a number that was never heard of.
      default: .retry("Apple answered a status that is not documented")
      }
  }
}
