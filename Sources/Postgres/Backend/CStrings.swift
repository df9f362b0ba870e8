/// Strings as C functions take a list of them: an array of pointers, closed by a null pointer.
struct CStrings {
  private let bytes: [CChar]
  private let offsets: [Int]

  init(_ strings: [String]) {
    var bytes: [CChar] = []
    var offsets: [Int] = []
    for string in strings {
      offsets.append(bytes.count)
      bytes.append(contentsOf: string.utf8CString)
    }
    self.bytes = bytes
    self.offsets = offsets
  }

  func withPointers<T>(_ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> T) -> T {
    unsafe bytes.withUnsafeBufferPointer { bytes in
      var pointers: [UnsafePointer<CChar>?] = unsafe []
      for offset in offsets { unsafe pointers.append(bytes.extracting(offset...).baseAddress) }
      unsafe pointers.append(nil)
      return unsafe pointers.withUnsafeBufferPointer { unsafe body($0.baseAddress) }
    }
  }
}
