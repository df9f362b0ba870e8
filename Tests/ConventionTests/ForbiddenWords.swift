/// Words of Swift that the house does without, each with the places where it is needed after all.
struct ForbiddenWord: Sendable {
  /// A regular expression, matched against code without comments and literals.
  var pattern: String
  /// The only folders in which it is forbidden; empty: everywhere.
  var within: [String] = []
  /// The folders in which it is allowed all the same.
  var except: [String] = []
  /// The fault and its fix.
  var fault: String

  static let all = [
    ForbiddenWord(
      pattern: #"\bpublic\b"#,
      fault: "`public` has no meaning in an application: `package`, or nothing"),
    // Also `UnsafePointer`, `withUnsafeBytes` and `nonisolated(unsafe)`.
    ForbiddenWord(
      pattern: #"\b\w*Unsafe[A-Z]\w*|\bunsafe\w*|@safe\b|@unchecked\b"#,
      // A task executor, `inet_pton` and zlib can be used in no other way.
      except: [
        "Sources/Postgres/", "Tests/PostgresTests/",
        "Sources/Intake/Notifications/VerificationQueue.swift",
        "Sources/BackgroundJobs/Webhooks/WebhookReceiver.swift",
        "Sources/LedgerStorage/Bodies/Deflate.swift",
      ],
      fault: "only libpq's own target does what the compiler cannot check"),
    ForbiddenWord(
      pattern: #"\.detached\b"#,
      fault: "a detached task outlives the task that waits for it: use a child task or a service"),
    ForbiddenWord(
      pattern: #"\btry!"#, fault: "`try!` ends the process without a sentence: handle the error"),
    ForbiddenWord(
      pattern: #"\bas!"#, fault: "`as!` ends the process without a sentence: use `as?`"),
    ForbiddenWord(
      pattern: #"\bfatalError\("#,
      fault: "an impossible state is a preconditionFailure with a sentence"),
    ForbiddenWord(
      pattern:
        #"\b(Date|\w*Clock|FileManager|FileHandle|Process|URLSession)\b|\.random\b|\bUUID\(\)"#,
      within: ["Sources/Subscriptions/"],
      fault: "the rules are pure: time and chance are parameters"),
    ForbiddenWord(
      pattern: #"\[String: (?!Any\])|\bSet<String>"#, within: foreignText,
      fault: "strings are compared by their canonical form: text from outside is an ExactText"),
    ForbiddenWord(
      pattern: #"\bJSONDecoder\b|\bremovingPercentEncoding\b|\.queryParameters\b|\.cookies\b"#,
      within: ["Sources/AdminSite/", "Sources/HTTPAPI/", "Sources/JSONText/"],
      // It decodes what the strict reader has accepted, into fields with names in ASCII.
      except: ["Sources/AdminSite/Rendering/Paging.swift"],
      fault: "what callers send is read by bytes: JSONValue, EncodedFields, Request.cookie"),
  ]

  /// The folders that contain foreign text, or rules about such text.
  private static let foreignText = [
    "Sources/Subscriptions/", "Sources/JSONText/", "Sources/HTTPAPI/Input/",
    "Sources/AppStore/JSON/", "Sources/AppStore/LocalReceipt/", "Sources/AppStore/Notifications/",
    "Sources/Intake/Import/",
  ]

  func findings(in source: SwiftSource) throws -> [Finding] {
    guard within.isEmpty || within.contains(where: source.path.hasPrefix),
      !except.contains(where: source.path.hasPrefix)
    else { return [] }
    return try source.findings(of: pattern, fault: fault)
  }
}
