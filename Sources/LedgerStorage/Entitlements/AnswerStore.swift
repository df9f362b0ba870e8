import Subscriptions

/// The answers of many accounts in few bytes; the oldest make room for new ones.
///
/// Answers differ in little but digits: the rest is kept once for all that share it, and a digit
/// takes half a byte: some 110 bytes with account and index, for 400 bytes of JSON.
struct AnswerStore: Sendable {
  private struct Record: Sendable {
    let hash: Int
    let validity: Range<Timestamp>
    let shape: UInt32
    /// The position in the block's bytes of the account ID, which the digits follow.
    let start: UInt32
    let accountLength: UInt16
  }

  /// Answers that were kept one after another, and are dropped together.
  private struct Block: Sendable {
    var records: [Record]
    var bytes: [UInt8]
  }

  /// Text of answers, with zeros in place of digits.
  private struct Shape: Sendable {
    let text: [UInt8]
    let digits: [UInt32]

    /// With the text as the key of ``shapeNumbers``.
    var size: Int { 2 * text.count + 4 * digits.count + 200 }
  }

  /// Longer answers are not kept.
  private static let longestAnswer = 1 << 15
  private static let bytesPerAnswer = 64
  private static let free = UInt32.max

  private let limit: Int
  private let recordsPerBlock: Int
  private let indexSize: Int

  private var blocks: [Block] = []
  /// The blocks in use, oldest first; the last one is being filled.
  private var order: [Int] = []
  private var emptied: [Int] = []
  private var shapes: [Shape] = []
  private var shapeNumbers: [ExactText: UInt32] = [:]
  private var shapeSize = 0
  /// The locations of answers by the hash of the account, with linear probing.
  private var index: [UInt32] = []
  private(set) var count = 0
  /// The number of answers that had to make room.
  private(set) var evicted = 0

  /// - Parameter limit: The bytes that it may take; at least ``smallestLimit``.
  init(limit: Int) {
    self.limit = limit
    // Small blocks in a small store, so that it has some.
    recordsPerBlock = limit < 32 << 20 ? 256 : 4096
    var size = 1
    while size < limit / 64 { size *= 2 }
    indexSize = size
  }

  static let smallestLimit = 1 << 20

  private var blockSize: Int {
    recordsPerBlock * (MemoryLayout<Record>.stride + Self.bytesPerAnswer)
  }

  var size: Int { 4 * index.count + blocks.count * blockSize + shapeSize }

  // MARK: Reading

  func contains(_ accountID: String) -> Bool {
    place(of: accountID, hash: AccountID(accountID).hashValue) != nil
  }

  /// Appends an account's answer if it is kept and valid at the moment; otherwise it is dropped.
  mutating func append(
    answerOf accountID: String, at moment: Timestamp, to bytes: inout [UInt8]
  ) -> Bool {
    guard let place = place(of: accountID, hash: AccountID(accountID).hashValue) else {
      return false
    }
    let record = record(at: index[place])
    guard record.validity.contains(moment) else {
      vacate(place)
      return false
    }
    let (shape, packed) = (shapes[Int(record.shape)], blocks[block(of: index[place])].bytes)
    let start = Int(record.start) + Int(record.accountLength)
    let base = bytes.count
    bytes.append(contentsOf: shape.text)
    for (number, position) in shape.digits.enumerated() {
      let pair = packed[start + number / 2]
      bytes[base + Int(position)] |= number.isMultiple(of: 2) ? pair >> 4 : pair & 0xF
    }
    return true
  }

  // MARK: Writing

  /// Keeps an account's answer in place of an earlier one.
  mutating func insert(
    _ answer: ArraySlice<UInt8>, of accountID: String, validFor validity: Range<Timestamp>
  ) {
    guard answer.count <= Self.longestAnswer else { return }
    let hash = AccountID(accountID).hashValue
    if let place = place(of: accountID, hash: hash) { vacate(place) }
    var text = Array(answer)
    var (digits, packed): ([UInt32], [UInt8]) = ([], [])
    for position in text.indices where (0x30...0x39).contains(text[position]) {
      let digit = text[position] & 0xF
      if digits.count.isMultiple(of: 2) {
        packed.append(digit << 4)
      } else {
        packed[packed.count - 1] |= digit
      }
      text[position] = 0x30
      digits.append(UInt32(position))
    }
    let accountLength = accountID.utf8.count
    let length = accountLength + packed.count
    guard length <= recordsPerBlock * Self.bytesPerAnswer else { return }
    let shape = number(of: Shape(text: text, digits: digits))
    let block = blockWithRoom(for: length)
    let start = UInt32(blocks[block].bytes.count)
    blocks[block].bytes.append(contentsOf: accountID.utf8)
    blocks[block].bytes.append(contentsOf: packed)
    let location = UInt32(block * recordsPerBlock + blocks[block].records.count)
    blocks[block].records.append(
      Record(
        hash: hash, validity: validity, shape: shape, start: start,
        accountLength: UInt16(accountLength)))
    var place = home(of: hash)
    while index[place] != Self.free { place = next(place) }
    index[place] = location
    count += 1
  }

  /// Drops an account's answer, and returns whether there was one.
  mutating func remove(_ accountID: String) -> Bool {
    guard let place = place(of: accountID, hash: AccountID(accountID).hashValue) else {
      return false
    }
    vacate(place)
    return true
  }

  @discardableResult
  mutating func removeAll() -> Int {
    defer {
      (blocks, order, emptied, shapes, index) = ([], [], [], [], [])
      shapeNumbers = [:]
      (shapeSize, count) = (0, 0)
    }
    return count
  }

  private mutating func number(of shape: Shape) -> UInt32 {
    let name = ExactText(String(decoding: shape.text, as: UTF8.self))
    if let known = shapeNumbers[name] { return known }
    // Shapes are not dropped one by one: nothing counts the answers that have them.
    if shapeSize + shape.size > limit / 8 { evicted += removeAll() }
    let number = UInt32(shapes.count)
    shapes.append(shape)
    shapeNumbers[name] = number
    shapeSize += shape.size
    return number
  }

  /// The block for the next answer, after dropping the oldest one where there is no room.
  private mutating func blockWithRoom(for length: Int) -> Int {
    if index.isEmpty { index = Array(repeating: Self.free, count: indexSize) }
    if count >= indexSize / 4 * 3 { dropOldest() }
    if let last = order.last, blocks[last].records.count < recordsPerBlock,
      blocks[last].bytes.count + length <= recordsPerBlock * Self.bytesPerAnswer
    {
      return last
    }
    // The rest is for shapes.
    if emptied.isEmpty, size - shapeSize + blockSize > limit / 8 * 7 { dropOldest() }
    if emptied.isEmpty {
      emptied.append(blocks.count)
      var block = Block(records: [], bytes: [])
      block.records.reserveCapacity(recordsPerBlock)
      block.bytes.reserveCapacity(recordsPerBlock * Self.bytesPerAnswer)
      blocks.append(block)
    }
    order.append(emptied.removeLast())
    return order[order.count - 1]
  }

  private mutating func dropOldest() {
    guard let oldest = order.first else { return }
    order.removeFirst()
    emptied.append(oldest)
    let before = count
    for (number, record) in blocks[oldest].records.enumerated() {
      let location = UInt32(oldest * recordsPerBlock + number)
      var place = home(of: record.hash)
      while index[place] != Self.free, index[place] != location { place = next(place) }
      if index[place] == location { vacate(place) }
    }
    blocks[oldest].records.removeAll(keepingCapacity: true)
    blocks[oldest].bytes.removeAll(keepingCapacity: true)
    evicted += before - count
  }

  // MARK: The index

  private func home(of hash: Int) -> Int { hash & (indexSize - 1) }

  private func next(_ place: Int) -> Int { (place + 1) & (indexSize - 1) }

  private func block(of location: UInt32) -> Int { Int(location) / recordsPerBlock }

  private func record(at location: UInt32) -> Record {
    blocks[block(of: location)].records[Int(location) % recordsPerBlock]
  }

  private func place(of accountID: String, hash: Int) -> Int? {
    guard !index.isEmpty else { return nil }
    var place = home(of: hash)
    while index[place] != Self.free {
      let record = record(at: index[place])
      if record.hash == hash, isAccount(accountID, of: record, at: index[place]) { return place }
      place = next(place)
    }
    return nil
  }

  private func isAccount(_ accountID: String, of record: Record, at location: UInt32) -> Bool {
    let start = Int(record.start)
    return blocks[block(of: location)].bytes[start..<start + Int(record.accountLength)]
      .elementsEqual(accountID.utf8)
  }

  /// Frees a place, and moves those behind it that it kept from their homes.
  private mutating func vacate(_ place: Int) {
    var (hole, following) = (place, next(place))
    while index[following] != Self.free {
      let distance = following - home(of: record(at: index[following]).hash)
      if distance & (indexSize - 1) >= (following - hole) & (indexSize - 1) {
        index[hole] = index[following]
        hole = following
      }
      following = next(following)
    }
    index[hole] = Self.free
    count -= 1
  }
}
