import ArgumentParser
import Foundation
import LedgerStorage

struct VerifyProofCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify-proof",
    abstract: "Verifies a proof of a charge's entries. Exit status 1 if it is not one.",
    discussion: """
      The file is the answer of GET /v1/transactions/{transaction_id}/evidence?proof=1. Neither a \
      database nor a network is needed.
      """)

  @Argument(help: ArgumentHelp("The proof.", valueName: "file"))
  var file: String

  @Option(
    help: ArgumentHelp(
      "Requires that the proof's checkpoint is in this file, each a line of JSON.",
      valueName: "file"))
  var against: String?

  func run() throws {
    let proof: LedgerProof
    do {
      proof = try JSONDecoder().decode(
        LedgerProof.self, from: Data(contentsOf: URL(filePath: file)))
    } catch is DecodingError {
      throw ValidationError("\(file) is not a proof.")
    }
    do {
      try proof.verify()
      if let against {
        guard let checkpoint = proof.checkpoint,
          try Checkpoint.read(from: against).contains(checkpoint)
        else { throw LedgerProof.Fault(description: "The checkpoint is not in \(against).") }
      }
    } catch let fault as LedgerProof.Fault {
      print(fault.description)
      throw ExitCode.failure
    }
    print(
      """
      original transaction  \(proof.line)
      entries               \(proof.entries.count)
      covered               \(proof.covered)
      checkpoint            \(proof.checkpoint?.text ?? "none")
      """)
  }
}
