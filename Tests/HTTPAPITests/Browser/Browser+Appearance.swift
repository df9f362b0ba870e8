import AppStore
import Foundation
import JSONText
@testable import HTTPAPI

/// Appearance settings and checks.
extension Browser {
  /// Sends a command of the DevTools protocol:
  /// <https://chromedevtools.github.io/devtools-protocol>.
  @discardableResult
  func command(_ name: String, _ parameters: JSONValue) async throws -> JSONValue {
    try await driver.post(
      "/goog/cdp/execute", ["cmd": .string(name), "params": parameters])
  }

  func setDark(_ isDark: Bool) async throws {
    try await command(
      "Emulation.setEmulatedMedia",
      [
        "features": [
          ["name": "prefers-color-scheme", "value": isDark ? "dark" : "light"],
          ["name": "prefers-reduced-motion", "value": "reduce"],
        ]
      ])
  }

  /// Switches between a small phone and a desktop.
  func setPhone(_ isPhone: Bool) async throws {
    try await command(
      "Emulation.setDeviceMetricsOverride",
      [
        "width": isPhone ? 360 : 1280, "height": isPhone ? 740 : 900, "deviceScaleFactor": 1,
        "mobile": .bool(isPhone),
      ])
  }

  func setScripts(_ areOn: Bool) async throws {
    try await command("Emulation.setScriptExecutionDisabled", ["value": .bool(!areOn)])
  }

  /// Deletes cookies and resets all settings.
  func reset() async throws {
    try await command("Network.clearBrowserCookies", [:])
    try await setScripts(true)
    try await setDark(false)
    try await setPhone(false)
    try driver.forgetDownloads()
    _ = try await complaints()
  }

  /// The whole page as a PNG.
  func picture() async throws -> [UInt8] {
    let picture = try await command(
      "Page.captureScreenshot", ["format": "png", "captureBeyondViewport": true])
    return Data(base64Encoded: picture["data"]?.string ?? "").map(Array.init) ?? []
  }

  /// The new errors and warnings of the browser's console: failed scripts, missing files,
  /// violations of the page's policy.
  func complaints() async throws -> [String] {
    let entries = try await driver.post("/se/log", ["type": "browser"]).array ?? []
    return entries.filter { ["SEVERE", "WARNING"].contains($0["level"]?.string) }
      .compactMap { $0["message"]?.string }
  }

  /// Low contrast and horizontal scrolling on the current page.
  func flaws() async throws -> [String] {
    try await run(Self.findFlaws).array?.compactMap(\.string) ?? []
  }

  /// Finds elements that scroll the page sideways, and text with a contrast below 4.5 to 1:
  /// <https://www.w3.org/TR/WCAG22/#contrast-minimum>.
  private static let findFlaws = #"""
    const flaws = new Set();
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth) {
      flaws.add(`scrolls sideways: ${page.scrollWidth} > ${page.clientWidth}`);
    }
    const colour = (text) => {
      const numbers = text.match(/[\d.]+(?:e-?\d+)?/g).map(Number);
      const scale = text.startsWith("color(srgb") ? 255 : 1;
      const [red, green, blue, alpha = 1] = numbers;
      return [red * scale, green * scale, blue * scale, alpha];
    };
    const over = (top, bottom) =>
      [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
    const luminance = (colour) => {
      const [red, green, blue] = colour.map((value) => {
        const part = value / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const known = new Map();
    const background = (element) => {
      if (!element) return [255, 255, 255, 1];
      if (!known.has(element)) {
        const own = colour(getComputedStyle(element).backgroundColor);
        known.set(element, over(own, background(element.parentElement)));
      }
      return known.get(element);
    };
    let count = 0;
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const element = text.parentElement;
      if (!text.textContent.trim() || element.closest("title, desc, option, script")) continue;
      if (!element.checkVisibility({ visibilityProperty: true })) continue;
      count += 1;
      const style = getComputedStyle(element);
      const behind = background(element);
      const ink = over(colour(element instanceof SVGElement ? style.fill : style.color), behind);
      const [light, dark] = [luminance(ink), luminance(behind)].sort((a, b) => b - a);
      const contrast = (light + 0.05) / (dark + 0.05);
      if (contrast < 4.5) {
        flaws.add(`contrast ${contrast.toFixed(2)}: ${text.textContent.trim().slice(0, 60)}`);
      }
    }
    if (count === 0) flaws.add("no text at all");
    return [...flaws];
    """#
}
