import Subscriptions

/// The name of a field of Apple's; any text is one.
struct AnswerKey: CodingKey, ExpressibleByStringLiteral {
  let stringValue: String
  var intValue: Int? { nil }

  init(stringValue: String) { self.stringValue = stringValue }
  init(stringLiteral value: String) { stringValue = value }
  init?(intValue: Int) { nil }
}

/// What is wrong with a part of an answer, in words and without its values.
struct UnreadableField: Error, CustomStringConvertible {
  let description: String

  init(_ field: AnswerKey, _ fault: String) { description = "\(field.stringValue) \(fault)" }
}

/// Reads a field in any of the forms in which Apple has been seen to write it.
///
/// Each method gives nil for a field that is missing, null or empty, and throws `UnreadableField`
/// for one that is there and means nothing: what is there and not understood must not be taken for
/// absent, for a cancellation is a field, too.
extension KeyedDecodingContainer<AnswerKey> {
  /// A text, or a number as text.
  func text(_ key: AnswerKey) throws -> String? {
    do {
      guard let text = try decodeIfPresent(String.self, forKey: key) else { return nil }
      return text.isEmpty ? nil : text
    } catch {
      if let number = try? decode(Int64.self, forKey: key) { return String(number) }
      if let number = try? decode(UInt64.self, forKey: key) { return String(number) }
      throw UnreadableField(key, "is neither text nor a whole number")
    }
  }

  /// A text that can be part of a key: see ``AppleIdentifier``.
  func identifier(_ key: AnswerKey, upTo limit: Int = AppleIdentifier.longest) throws -> String? {
    guard let text = try text(key) else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) {
      throw UnreadableField(key, fault)
    }
    return text
  }

  /// An `original_transaction_id`, `transaction_id` or `web_order_line_item_id`.
  func transactionIdentifier(_ key: AnswerKey) throws -> String? {
    try identifier(key, upTo: AppleIdentifier.longestNumber)
  }

  /// A `cancellation_reason`; nil if it can't be read: a cancellation holds without its reason.
  func reason(_ key: AnswerKey) -> String? { try? identifier(key, upTo: 64) }

  func integer(_ key: AnswerKey, in range: ClosedRange<Int>) throws -> Int? {
    guard let text = try text(key) else { return nil }
    guard let number = Int(text) else { throw UnreadableField(key, "is not a whole number") }
    guard range.contains(number) else { throw UnreadableField(key, "is out of range") }
    return number
  }

  /// `true`, `"true"`, `1` or `"1"`, and their opposites.
  func flag(_ key: AnswerKey) throws -> Bool? {
    let text: String?
    do {
      text = try self.text(key)
    } catch {
      // Tried last: most are texts, and the error of a wrong guess is slow to make.
      guard let flag = try? decode(Bool.self, forKey: key) else { throw error }
      return flag
    }
    switch text?.lowercased() {
    case nil: return nil
    case "1", "true": return true
    case "0", "false": return false
    default: throw UnreadableField(key, "is neither true nor false")
    }
  }

  /// A date from `…_ms`, the field itself, or `…_formatted`, whichever can be read first.
  ///
  /// The field itself is a text such as `2019-08-20 04:28:57 Etc/GMT`, or, in answers to old
  /// receipts, the milliseconds since 1970.
  func moment(_ name: String) throws -> Timestamp? {
    var fault: UnreadableField?
    for suffix in ["_ms", "", "_formatted"] {
      let key = AnswerKey(stringValue: name + suffix)
      do {
        guard let text = try text(key) else { continue }
        if let moment = Timestamp(appStoreDate: text) { return moment }
      } catch {}
      fault = UnreadableField(key, "is not a date")
    }
    if let fault { throw fault }
    return nil
  }
}

extension Timestamp {
  /// Reads milliseconds since 1970, or `YYYY-MM-DD HH:MM:SS Etc/GMT`; nil for anything else, and
  /// outside the years 1970 to 9999 in either form.
  init?(appStoreDate text: String) {
    if let milliseconds = Int64(text) {
      self.init(milliseconds: milliseconds)
    } else if text.hasSuffix(" Etc/GMT") {
      self.init(rfc3339: text.dropLast(" Etc/GMT".count) + "Z")
    } else {
      self.init(rfc3339: text)
    }
    guard (Timestamp(milliseconds: 0)...Self.writable.upperBound).contains(self) else { return nil }
  }
}
