import ArgumentParser
import Bootstrap
import HTTPAPI
import JSONText
import Logging

struct DoctorCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "doctor", abstract: "Checks configuration and connectivity and suggests fixes.",
    discussion: """
      Checks settings, database, Apple and webhook without changing anything or sending events. \
      Each check prints its finding and a suggested fix. Exit status 1 on a fault; 0 with warnings \
      only.
      """)

  @OptionGroup var options: SettingOptions

  @Option(help: "Output format: text or json.")
  var format = OutputFormat.text

  func run() async throws {
    let report = await examine()
    switch format {
    case .text: print(report.text)
    case .json:
      var json = JSONWriter(capacity: 4096)
      report.write(to: &json)
      print(json.text)
    }
    guard report.isHealthy else { throw ExitCode.failure }
  }

  /// One finding per invalid setting; the other checks need valid settings.
  private func settingFaults() async -> [DoctorFinding] {
    do {
      _ = try await options.settings(needing: Settings.Need.allCases)
      return []
    } catch {
      return SettingErrors.faults(in: error).map {
        .fault(
          "settings", "\($0).",
          remedy: "Fix the setting, without which no program starts, and run the doctor again.")
      }
    }
  }

  private func examine() async -> DoctorReport {
    guard let settings = try? await options.settings() else {
      return DoctorReport(findings: await settingFaults())
    }
    // The findings report faults, so they aren't logged as well.
    let logger = Logger.bootstrapTenure(
      level: max(settings.logLevel, .critical), format: settings.logFormat)
    return await Doctor(settings: settings, logger: logger).examine()
  }
}
