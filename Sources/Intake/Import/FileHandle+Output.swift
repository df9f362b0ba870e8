package import Foundation
import SystemPackage

extension FileHandle {
  /// Creates a file, or opens it and truncates it.
  ///
  /// Devices, pipes and links stay, unlike with `FileManager.createFile`, which would replace even
  /// `/dev/null` by a file.
  ///
  /// - Throws: ``FileFault``.
  package convenience init(replacingContentsOf path: String) throws {
    do {
      let file = try FileDescriptor.open(
        FilePath(path), .writeOnly, options: [.create, .truncate, .closeOnExec],
        permissions: [.ownerReadWrite, .groupReadWrite, .otherReadWrite])
      self.init(fileDescriptor: file.rawValue, closeOnDealloc: true)
    } catch let error as Errno {
      throw FileFault(description: "\(path) can't be written: \(error).")
    }
  }
}
