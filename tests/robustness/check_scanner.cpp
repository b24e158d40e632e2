// Feeds the scanner with bytes of any kind, for sanitizers: a target of libFuzzer, or a program that reads files.
//
//   g++ -std=c++17 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover -Inative tests/robustness/check_scanner.cpp
//       native/row_scanner.cpp -o check
//   ./check FILE ...          rows of files, with bytes changed, cut and doubled; prints how many texts it scanned, how many were plain
//   the same with clang++ -fsanitize=fuzzer,address,undefined -DLIBFUZZER is a fuzzer: `make fuzz`
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "row_scanner.hpp"

// A copy with nothing behind its 0, so that each read past the end is found; then the codes and places must make sense.
static bool scan(hpuprof::RowScanner& scanner, const std::string& text, bool exact) {
    const std::unique_ptr<char[]> copy(new char[text.size() + 1]);
    std::copy(text.c_str(), text.c_str() + text.size() + 1, copy.get());
    if (!scanner.scan(copy.get(), text.size(), exact)) return false;
    const auto size = static_cast<std::int64_t>(text.size());
    for (const hpuprof::Slice& slice : scanner.slices) {
        for (const auto word : {hpuprof::CAT, hpuprof::NAME, hpuprof::DTYPE, hpuprof::HW})
            if (slice[word] < 0 || slice[word] >= scanner.words.count()) std::abort();
        if (slice[hpuprof::TRACK] < 1 || slice[hpuprof::TRACK] >= scanner.tracks.count()) std::abort();
        if (slice[hpuprof::INPUTS] < 0 || slice[hpuprof::INPUTS] >= scanner.inputs.count()) std::abort();
        if (slice[hpuprof::OFFSET] < 0 || slice[hpuprof::LENGTH] < 2 || slice[hpuprof::OFFSET] + slice[hpuprof::LENGTH] > size) std::abort();
    }
    for (const hpuprof::Other& row : scanner.others)
        if (row.kind < 1 || row.offset < 0 || row.length < 2 || row.offset + row.length > size) std::abort();
    return true;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    hpuprof::RowScanner scanner;
    const std::string text(reinterpret_cast<const char*>(data), size);
    for (const bool exact : {false, true}) scan(scanner, text, exact);
    return 0;
}

#ifndef LIBFUZZER
int main(int count, char** names) {
    constexpr int CHANGES = 1000;
    constexpr std::size_t LONGEST = 4000;
    const std::string odd = "\"\\{}[],:0-.eEnu\x01\x80\xff X", head = "{\"ph\":\"X\",\"ts\":1,\"args\":{";
    std::mt19937 random(7);
    const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
    hpuprof::RowScanner scanner;
    long scanned = 0, plain = 0;
    for (int i = 1; i < count; ++i) {
        std::ifstream file(names[i], std::ios::binary);
        const std::string whole(std::istreambuf_iterator<char>(file), {});
        plain += scan(scanner, whole, false);
        for (int change = 0; change < CHANGES; ++change, ++scanned) {
            // From the beginning of what may be a row, and often to the end of one.
            const std::size_t start = whole.rfind('{', whole.find("\"ph\"", below(whole.size())));
            std::string text = whole.substr(start == std::string::npos ? 0 : start, below(LONGEST));
            if (const std::size_t end = text.rfind("},"); end != std::string::npos && below(4) != 0) text.resize(end + 1);
            for (std::size_t left = below(4); left > 0 && !text.empty(); --left) {
                const std::size_t at = below(text.size());
                switch (below(4)) {
                    case 0: text[at] = odd[below(odd.size())]; break;
                    case 1: text.insert(at, 1, odd[below(odd.size())]); break;
                    case 2: text.erase(at, below(20)); break;
                    default: text.insert(at, text.substr(at, below(60))); break;
                }
            }
            if (below(20) == 0) text = head + text;
            plain += scan(scanner, text, below(2) == 0);
        }
    }
    std::printf("%ld %ld\n", scanned, plain);
}
#endif
