import ArgumentParser
import Bootstrap
import JSONText
import Logging

/// `tenure doctor`: what is wrong, before it goes wrong.
struct DoctorCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "doctor",
    abstract: "Looks at settings, database, Apple and webhook, and says what to mend.",
    discussion: """
      Changes nothing, and sends no event. Each check says what it found, and how to mend it. Exit \
      status 1 where something does not work; warnings alone are 0.
      """)

  /// How the findings are shown.
  enum Format: String, CaseIterable, ExpressibleByArgument {
    case text
    case json
  }

  @OptionGroup var options: SettingOptions

  @Option(help: "How to show the findings: text or json.")
  var format = Format.text

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

  /// One finding per wrong setting: without settings there is nothing else to check.
  private func settingFaults() async -> [DoctorFinding] {
    do {
      _ = try await options.settings(needing: Settings.Need.allCases)
      return []
    } catch {
      return SettingErrors.faults(in: error).map {
        .fault(
          "settings", "\($0).",
          remedy: "Fix this setting: no program starts with it. Then run the doctor again.")
      }
    }
  }

  private func examine() async -> DoctorReport {
    let settings: Settings
    do {
      settings = try await options.settings()
    } catch {
      return DoctorReport(findings: await settingFaults())
    }
    // What is wrong is told once, by the findings.
    let logger = Logger.bootstrapTenure(
      level: max(settings.logLevel, .critical), format: settings.logFormat)
    return await Doctor(settings: settings, logger: logger).examine()
  }
}
