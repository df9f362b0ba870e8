/// How much of other transactions a transaction can see.
package enum IsolationLevel: String, Sendable {
  case readCommitted = "READ COMMITTED"
  case repeatableRead = "REPEATABLE READ"
  case serializable = "SERIALIZABLE"
}
