/// An iOS 7 style answer with those lists, made at 5000.
func answer(
  inApp: JSON = [], latest: JSON = .null, renewals: JSON = .null, status: JSON = 0,
  receipt: [String: JSON] = [:]
) -> JSON {
  let body: JSON = [
    "bundle_id": "com.example.app", "receipt_creation_date_ms": "2000",
    "request_date_ms": "5000", "in_app": inApp,
  ]
  return JSON.object(["status": status, "environment": "Production"]).with([
    "receipt": body.with(receipt), "latest_receipt_info": latest, "pending_renewal_info": renewals,
  ])
}

/// One month of a subscription, from 1000 to 4000, as Apple lists it.
let month: JSON = [
  "quantity": "1", "product_id": "monthly", "transaction_id": "11",
  "original_transaction_id": "10", "web_order_line_item_id": "900",
  "purchase_date": "1970-01-01 00:00:01 Etc/GMT", "purchase_date_ms": "1000",
  "purchase_date_pst": "1969-12-31 16:00:01 America/Los_Angeles",
  "original_purchase_date_ms": "900", "expires_date_ms": "4000", "is_trial_period": "false",
  "is_in_intro_offer_period": "false",
]
