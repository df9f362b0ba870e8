/// A setting that the program cannot start with: its name, what is wrong, and what would be right.
struct SettingError: Error, CustomStringConvertible {
  let name: String
  let fault: String

  var description: String { "\(name): \(fault)" }
}
