import Subscriptions

import struct Foundation.UUID

/// What the story sends, and reads of the answers: the interface has more.
extension TenureClient {
  struct ReceiptSubmission: Encodable, Sendable {
    var accountID: String
    var receiptData: String
    var transactionID: String?
    var orderID: String?
    var restore = false

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case receiptData = "receipt_data"
      case transactionID = "transaction_id"
      case orderID = "order_id"
      case restore
    }
  }

  struct SignedSubmission: Encodable, Sendable {
    var accountID: String
    var signedTransactions: [String]
    var signedRenewalInfo: [String]?
    var orderID: String?
    var restore = false

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case signedTransactions = "signed_transactions"
      case signedRenewalInfo = "signed_renewal_info"
      case orderID = "order_id"
      case restore
    }
  }

  struct Account: Decodable, Sendable {
    var appAccountToken: UUID

    enum CodingKeys: String, CodingKey {
      case appAccountToken = "app_account_token"
    }
  }

  struct ProductDescription: Encodable {
    var type: ProductType
    var entitlements: [String]
    var group: String?
    var level: Int?
    var period: String?
    var priceMilliunits: Int64
    var currency: String

    enum CodingKeys: String, CodingKey {
      case type, entitlements, level, period, currency
      case group = "subscription_group"
      case priceMilliunits = "price_milliunits"
    }
  }

  struct Submission: Decodable, Sendable {
    var id: String
    var status: String
    var transactions: [Transaction]?
    var order: Order?
    var warnings: [String]?

    enum CodingKeys: String, CodingKey {
      case id = "submission_id"
      case status, transactions, order, warnings
    }

    var isPending: Bool { status == "pending" }
    var newlyOwned: [Transaction] { (transactions ?? []).filter(\.isNewlyOwned) }
  }

  struct Transaction: Decodable, Sendable {
    struct Decision: Decodable, Sendable {
      var rule: Subscriptions.Decision.Rule
      var because: String
      var correctedAt: String?

      enum CodingKeys: String, CodingKey {
        case rule, because
        case correctedAt = "corrected_at"
      }
    }

    var id: TransactionID
    var productID: ProductID
    var owner: String?
    var decision: Decision
    var isNewlyOwned: Bool
    var revokedAt: String?
    var aliases: [TransactionID]
    /// What the ledger has about it; nil in answers to submissions.
    var history: [HistoryEntry]?

    enum CodingKeys: String, CodingKey {
      case id = "transaction_id"
      case productID = "product_id"
      case owner = "owner_account_id"
      case isNewlyOwned = "newly_owned"
      case revokedAt = "revoked_at"
      case decision, aliases, history
    }
  }

  struct HistoryEntry: Decodable, Sendable {
    var number: Int
  }

  struct Order: Decodable, Sendable {
    var id: String
    var status: PurchaseOrder.Status
    var transactionID: TransactionID?

    enum CodingKeys: String, CodingKey {
      case id = "order_id"
      case transactionID = "transaction_id"
      case status
    }
  }

  struct Entitlement: Decodable, Sendable {
    var name: String
    /// Nil where nothing is bought any more.
    var productID: ProductID?
    var expiresAt: String?
    /// Later than what is paid, in a grace period.
    var accessEndsAt: String?

    enum CodingKeys: String, CodingKey {
      case name = "entitlement"
      case productID = "product_id"
      case expiresAt = "expires_at"
      case accessEndsAt = "access_ends_at"
    }
  }

  struct FeedPage: Decodable {
    var events: [Event]
    var next: String
  }

  struct Event: Decodable {
    struct Details: Decodable {
      var entitlement: Entitlement?
    }

    var id: String
    var type: String
    var account: String?
    var data: Details

    enum CodingKeys: String, CodingKey {
      case account = "account_id"
      case id, type, data
    }
  }

  struct Entitlements: Decodable {
    var entitlements: [Entitlement]
  }

  struct Transactions: Decodable {
    var transactions: [Transaction]
    var next: String?
  }

  struct Line: Decodable, Sendable {
    var account: String?
    var isAutoRenewing: Bool

    enum CodingKeys: String, CodingKey {
      case account = "account_id"
      case isAutoRenewing = "auto_renewing"
    }
  }

  struct Delivery: Decodable {
    var isFirst: Bool

    enum CodingKeys: String, CodingKey {
      case isFirst = "first"
    }
  }

  struct Described: Decodable {}
}
