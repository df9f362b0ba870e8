extension String {
  /// This text as the columns for sentences take it: up to a thousand characters, as PostgreSQL
  /// counts them, none of them a control character.
  ///
  /// What happened is told in the words of networks, libraries and Apple, which can be of any
  /// length and contain anything; that must never be a reason why it can't be stored.
  var storedSentence: String {
    let scalars = unicodeScalars.lazy.filter { $0.properties.generalCategory != .control }
    let text = String(String.UnicodeScalarView(scalars.prefix(1000)))
    return text.isEmpty ? "No reason was given." : text
  }
}
