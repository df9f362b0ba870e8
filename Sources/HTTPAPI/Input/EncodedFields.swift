package import Subscriptions

/// The decoded names and values of a query or form, compared by bytes.
package struct EncodedFields: Sendable {
  package enum Form {
    /// A plus sign stays one, as in the offset of a time; undecodable text stays as it is.
    case query
    /// A plus sign is a space, as in HTML forms; undecodable and empty fields are left out.
    case html
  }

  /// In bytes.
  package static let longestName = 256

  private var fields: [(name: ExactText, value: ExactText)] = []
  /// Whether a field was left out because its name was too long.
  package private(set) var hasLongName = false

  package init() {}

  package init(_ text: String, _ form: Form) {
    for pair in text.utf8.split(separator: UInt8(ascii: "&")) {
      let parts = pair.split(
        separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
      guard parts[0].count <= Self.longestName else {
        hasLongName = true
        continue
      }
      let value = parts.count == 2 ? parts[1] : pair[pair.endIndex...]
      guard let name = Self.decoded(parts[0], form), let value = Self.decoded(value, form) else {
        continue
      }
      if form == .html, value.rawValue.isEmpty { continue }
      fields.append((name, value))
    }
  }

  package subscript(name: String) -> ExactText? {
    let name = ExactText(name)
    return fields.first { $0.name == name }?.value
  }

  package func all(_ name: String) -> [ExactText] {
    let name = ExactText(name)
    return fields.filter { $0.name == name }.map(\.value)
  }

  /// The fields whose names begin with a prefix, which is removed.
  package func all(beginningWith prefix: String) -> [(name: String, value: String)] {
    fields.filter { $0.name.rawValue.begins(with: prefix) }.map { name, value in
      (
        String(decoding: name.rawValue.utf8.dropFirst(prefix.utf8.count), as: UTF8.self),
        value.rawValue
      )
    }
  }

  private static func decoded(_ text: Substring.UTF8View, _ form: Form) -> ExactText? {
    if let decoded = String(percentEncoded: text, plusIsSpace: form == .html) {
      return ExactText(decoded)
    }
    return form == .query ? ExactText(Substring(text)) : nil
  }
}

extension String {
  /// Decodes percent-encoded UTF-8 (RFC 3986), or nil; Foundation would drop a byte order mark.
  init?(percentEncoded text: some Sequence<UInt8>, plusIsSpace: Bool = false) {
    var bytes: [UInt8] = []
    var rest = text.makeIterator()
    while let byte = rest.next() {
      switch byte {
      case UInt8(ascii: "%"):
        guard let high = rest.next().flatMap(Self.digit), let low = rest.next().flatMap(Self.digit)
        else { return nil }
        bytes.append(high << 4 | low)
      case UInt8(ascii: "+") where plusIsSpace: bytes.append(UInt8(ascii: " "))
      default: bytes.append(byte)
      }
    }
    self.init(validating: bytes, as: UTF8.self)
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    Character(Unicode.Scalar(byte)).hexDigitValue.map(UInt8.init)
  }
}
