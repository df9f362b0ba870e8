import Foundation

/// The working copy that these tests were compiled from.
enum Repository {
  static let root = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

  /// Every file that is tracked, or would be with `git add`: paths from the root, sorted.
  static let files: [String] = {
    do {
      let git = Process()
      git.executableURL = URL(filePath: "/usr/bin/env")
      // A clone may belong to another user than the one who tests it.
      git.arguments = ["git", "-c", "safe.directory=*", "-C", root.path()]
      git.arguments?.append(contentsOf: ["ls-files", "-z", "-co", "--exclude-standard"])
      let output = Pipe()
      git.standardOutput = output
      try git.run()
      let listing = try output.fileHandleForReading.readToEnd() ?? Data()
      git.waitUntilExit()
      precondition(git.terminationStatus == 0, "git ls-files failed in \(root.path()).")
      return listing.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }.sorted()
    } catch {
      preconditionFailure("The files of \(root.path()) can't be listed: \(error)")
    }
  }()

  /// The text of a file; nil if it was deleted or is not text.
  static func text(of path: String) -> String? {
    try? String(contentsOf: root.appending(path: path), encoding: .utf8)
  }

  /// Every Swift file below `Sources` and `Tests`.
  static let sources: [SwiftSource] = files.compactMap { path in
    guard path.hasSuffix(".swift"), SwiftSource.target(of: path) != nil else { return nil }
    return text(of: path).map { SwiftSource(path: path, text: $0) }
  }
}
