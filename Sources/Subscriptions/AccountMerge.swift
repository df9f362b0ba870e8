/// That an account became a part of another: a guest who has become a member.
///
/// What the account owned was placed with the other one at that moment. What the rule gives to it
/// all the same, by evidence or claims that are older, is the other one's, too.
package struct AccountMerge: Hashable, Sendable {
  /// The account that has what was the other one's.
  package var into: AccountKey
  /// From when on charges find both as one; later than every charge on the account's lines.
  package var at: Timestamp

  package init(into: AccountKey, at: Timestamp) {
    self.into = into
    self.at = at
  }
}
