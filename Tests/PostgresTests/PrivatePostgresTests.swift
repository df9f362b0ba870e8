import Foundation
import Postgres
import Testing

@testable import PrivatePostgres

@Suite struct PrivatePostgresTests {
  @Test func twoUsersShareOneServerAndTheLastStopsIt() async throws {
    let path = FileManager.default.temporaryDirectory
      .appending(path: "tenure-shared-\(UInt32.random(in: 0 ... .max))")
    var options = PrivatePostgres.Options.temporary
    options.listensOnLoopback = true
    let first = try await PrivatePostgres.start(in: path, options: options)
    let second = try await PrivatePostgres.start(in: path, options: options)
    let processID = try #require(await first.processID)
    #expect(await second.processID == processID)
    await first.stop()
    try await TestServer.withPool(uri: await second.uri()) {
      let alive = try await $0.query("SELECT 1").count
      #expect(alive == 1)
    }
    let loopback = try #require(await second.loopbackURI())
    try await TestServer.withPool(uri: loopback) {
      let alive = try await $0.query("SELECT 1").count
      #expect(alive == 1)
    }
    await second.stop()
    #expect(kill(processID, 0) != 0)
    #expect(!FileManager.default.fileExists(atPath: path.path))
  }

  @Test func aCrashedServerAndItsStaleFileAreNoObstacle() async throws {
    let path = FileManager.default.temporaryDirectory
      .appending(path: "tenure-stale-\(UInt32.random(in: 0 ... .max))")
    var options = PrivatePostgres.Options.temporary
    options.isTemporary = false
    let first = try await PrivatePostgres.start(in: path, options: options)
    let processID = try #require(await first.processID)
    kill(processID, SIGKILL)
    await first.stop()
    options.isTemporary = true
    let second = try await PrivatePostgres.start(in: path, options: options)
    #expect(await second.processID != processID)
    await second.stop()
  }

  @Test func aCrashedServersNumberMayBeAnotherPrograms() async throws {
    let path = FileManager.default.temporaryDirectory
      .appending(path: "tenure-foreign-\(UInt32.random(in: 0 ... .max))")
    let server = try await PrivatePostgres.start(in: path, options: .temporary)
    let processID = try #require(await server.processID)
    kill(processID, SIGKILL)
    while kill(processID, 0) == 0 { try await Task.sleep(for: .milliseconds(5)) }
    let other = try Process.run(URL(filePath: "/bin/sleep"), arguments: ["600"])
    // With SIGKILL: it may have been started with the others blocked.
    defer { kill(other.processIdentifier, SIGKILL) }
    let file = try ServerDirectory(path).data + "/postmaster.pid"
    let lines = try String(contentsOfFile: file, encoding: .utf8).split(
      separator: "\n", maxSplits: 1)
    try "\(other.processIdentifier)\n\(lines[1])".write(
      toFile: file, atomically: true, encoding: .utf8)
    await server.stop()
    #expect(!FileManager.default.fileExists(atPath: path.path))
    #expect(other.isRunning)
  }

  @Test func aStandbyHasEveryAcknowledgedCommitAndTakesOver() async throws {
    let path = FileManager.default.temporaryDirectory
      .appending(path: "tenure-pair-\(UInt32.random(in: 0 ... .max))")
    var options = PrivatePostgres.Options.temporary
    options.listensOnLoopback = true
    let standbyOptions = options
    options.settings["synchronous_standby_names"] = "*"
    let primary = try await PrivatePostgres.start(in: path, options: options)
    let standby = try await primary.startStandby(
      in: path.appendingPathExtension("standby"), options: standbyOptions)
    try await TestServer.withPool(uri: await primary.uri()) {
      try await $0.runScript("SET synchronous_commit = on; CREATE TABLE kept AS SELECT 7 AS number")
    }
    try await TestServer.withPool(uri: await standby.uri()) {
      _ = await #expect(throws: PostgresError.self) { [pool = $0] in
        try await pool.runScript("CREATE TABLE refused (number integer)")
      }
    }
    try await primary.kill()
    try await standby.promote()
    let loopback = try #require(await standby.loopbackURI())
    try await TestServer.withPool(uri: loopback) {
      try await $0.runScript("INSERT INTO kept VALUES (8)")
      let count = try await $0.query("SELECT number FROM kept").count
      #expect(count == 2)
    }
    await standby.stop()
    await primary.stop()
  }

  @Test func missingProgramsAreNamedWithTheirPackage() async throws {
    var options = PrivatePostgres.Options.temporary
    options.binaries = "/nowhere"
    let path = FileManager.default.temporaryDirectory.appending(path: "tenure-never")
    await #expect {
      try await PrivatePostgres.start(in: path, options: options)
    } throws: { "\($0)".contains("/nowhere") && "\($0)".contains("apt-get install postgresql") }
  }

  @Test func aServersFileIsRead() {
    let text = """
      4711
      /data
      1700000000
      5432
      /tmp/socket
      127.0.0.1
         123456  7
      ready

      """
    let file = PostmasterFile(text)
    #expect(file?.processID == 4711)
    #expect(file?.address?.port == 5432)
    #expect(file?.address?.socketDirectory == "/tmp/socket")
    #expect(file?.address?.isOnLoopback == true)
    #expect(PostmasterFile(text.replacing("ready", with: "starting"))?.address == nil)
    #expect(PostmasterFile("") == nil)
  }

  @Test func longPathsGetAShortSocket() throws {
    let long = FileManager.default.temporaryDirectory
      .appending(path: "tenure-\(String(repeating: "long", count: 30))")
    let directory = try ServerDirectory(long)
    #expect(directory.socketDirectory.utf8.count < 30)
    #expect(try ServerDirectory(long).socketDirectory == directory.socketDirectory)
    try FileManager.default.removeItem(at: long)
    try FileManager.default.removeItem(atPath: directory.socketDirectory)
  }
}
