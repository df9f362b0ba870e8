/// How the database's schema stands to a program that can work with it.
package enum SchemaStanding: Hashable, Sendable {
  /// It is of the version that the program knows.
  case current
  /// A newer program has brought it further, and this one may go on until it is replaced.
  case ahead(version: Int)
}

extension SchemaStanding {
  /// What there is to say of a schema that a newer program has brought to a version.
  package static func sentence(on version: Int) -> String {
    "The database's schema is version \(version), and serves programs of version "
      + "\(SchemaMigrator.currentVersion) as well: an upgrade is under way."
  }
}
