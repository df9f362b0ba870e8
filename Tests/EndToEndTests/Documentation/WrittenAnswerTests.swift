import Testing

@Suite("Answers as articles write them")
struct WrittenAnswerTests {
  // swift-format-ignore
  @Test("are compared by shape where they differ from run to run, and else exactly", arguments: [
    // fence   written                                                    real                                                        differs
    ("json", #"{"a": 1, "b": [true, null]}"#,                             #"{"b":[true,null],"a":1}"#,                                  false),
    ("json", #"{"a": 1}"#,                                                #"{"a":2}"#,                                                  true),
    ("json", #"{"a": 1}"#,                                                #"{"a":1,"b":2}"#,                                            true),
    ("json", #"{"a": 1, "…": "…"}"#,                                      #"{"a":1,"b":2}"#,                                            false),
    ("json", #"{"a": 1, "b": 2}"#,                                        #"{"a":1}"#,                                                  true),
    ("json", #"[1]"#,                                                     #"[1,2]"#,                                                    true),
    ("json", #"[1, "…"]"#,                                                #"[1,2]"#,                                                    false),
    ("json", #"[1, "…"]"#,                                                #"[]"#,                                                       true),
    ("json", #""2026-11-22T10:00:00.000Z""#,                              #""2031-01-01T00:00:00Z""#,                                   false),
    ("json", #""2026-11-22T10:00:00.000Z""#,                              "null",                                                       true),
    ("json", #"["1000000000", "1000000000", "2000000000"]"#,              #"["7777777777","7777777777","8888888888"]"#,                 false),
    ("json", #"["1000000000", "1000000000"]"#,                            #"["7777777777","8888888888"]"#,                              true),
    ("json", #"["1000000000", "2000000000"]"#,                            #"["7777777777","7777777777"]"#,                              true),
    ("json", #"["1000000000", "2000000000"]"#,                            #"["2000000000","1000000000"]"#,                              false),
    ("json", #""Charge 1000000000 … anna""#,                              #""Charge 4300000000 is of anna""#,                           false),
    ("json", #""Charge 1000000000 … anna""#,                              #""Charge 4300000000 is of ben""#,                            true),
    ("json", #""81241""#,                                                 #""81242""#,                                                  true),
    ("json", #"{"a": "…"}"#,                                              #"{"a":["anything"]}"#,                                       false),
    ("json", #"{"a": 1}"#,                                                "",                                                           true),
    ("http", "HTTP/1.1 202 Accepted\nLocation: /a/…\n\n{\"a\": 1}\n",     "HTTP/1.1 202 Accepted\r\nLocation: /a/b\r\nX: y\r\n\r\n{\"a\":1}", false),
    ("http", "HTTP/1.1 202 Accepted",                                     "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}",                           true),
    ("http", "HTTP/1.1 200 OK\nLocation: /a",                             "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}",                           true),
    ("http", "HTTP/1.1 200 OK\n\n{\"a\": 2}",                             "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}",                           true),
    ("text", "a  1\nb 2\n",                                               "a 1  \nb     2",                                             false),
    ("text", "a 1\n…\nc 3",                                               "a 1\nb 2\nb 2\nc 3\n",                                       false),
    ("text", "a 1\n…\nc 3",                                               "a 1\nb 2\nc 4\n",                                            true),
  ])
  func comparison(fence: String, written: String, real: String, differs: Bool) {
    let block = CodeBlock(language: fence, code: written, line: 1, section: "")
    var answer = WrittenAnswer()
    #expect(answer.differences(between: real, and: block).isEmpty != differs)
  }

  @Test("blocks have their section, and a reason where they are not run")
  func blocks() throws {
    let article = Article(
      path: "Sources/A/A.docc/A.md",
      text: """
        # A
        ## First

        ```sh
        ls
        ```

        ```json
        []
        ```

        - item

          ```sql
          SELECT 1
            FROM a
          ```

        ### Second

        <!-- Not run: it would take a year. -->
        ```sh
        sleep 31536000
        ```

        ```sh
        true
        ```

        Words.

        ```swift
        f()
        ```

        ```json
        {}
        ```
        """)
    let blocks = article.blocks
    #expect(blocks.map(\.language) == ["sh", "json", "sql", "sh", "sh", "swift", "json"])
    #expect(blocks.map(\.code).prefix(3) == ["ls\n", "[]\n", "SELECT 1\n  FROM a\n"])
    #expect(blocks.map(\.section).prefix(4) == ["First", "First", "First", "Second"])
    #expect(blocks.map(\.line).first == 4)
    #expect(blocks[3].reasonNotRun == "it would take a year.")
    let (run, left) = article.examples
    #expect(run.map(\.block.language) == ["sh", "sql", "sh"])
    #expect(run.map { $0.answer?.language } == ["json", nil, nil])
    #expect(left.map(\.language) == ["swift", "json"])
  }
}
