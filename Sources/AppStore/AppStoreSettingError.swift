/// A setting that cannot be meant as it stands.
package struct AppStoreSettingError: Error, Hashable, CustomStringConvertible {
  /// One sentence: what is wrong, and what would be right.
  package let description: String

  package init(_ description: String) {
    self.description = description
  }
}
