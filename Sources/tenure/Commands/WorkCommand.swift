import ArgumentParser
import Logging

/// `tenure work`: the worker.
struct WorkCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "work",
    abstract: "Does what is to be done later, again, or because time has passed.",
    discussion: """
      Any number of workers may run. Stops on SIGTERM or SIGINT after finishing the jobs that it \
      has begun.
      """)

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let settings = try await options.settings()
    _ = try settings.appStoreApps()
    let logger = Logger.bootstrapTenure(level: settings.logLevel)
    try await withProgram(settings, logger: logger) { assembly in
      logger.info("Working")
      return [CatalogueRefresh(catalogue: assembly.catalogue)] + assembly.worker()
    }
  }
}
