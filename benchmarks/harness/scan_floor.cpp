// CPU seconds of two passes over a trace, the file read in pieces by each: from quote to quote, and by the scanner.
//
//   g++ -std=c++17 -O3 -Inative benchmarks/harness/scan_floor.cpp native/row_scanner.cpp -o scan_floor
//   ./scan_floor FILE         prints the least of five turns: quotes, scanner, and the bytes that were not plain
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "row_scanner.hpp"

constexpr std::size_t PIECE = 1 << 20;  // as in hpuprof/ingest/source.py

// Gives `use` what is read so far, with room for a 0 behind it; it returns how much of it is not used yet.
template <typename Use> static double seconds(const char* path, Use use) {
    const std::clock_t begin = std::clock();
    std::FILE* file = std::fopen(path, "rb");
    std::vector<char> text(PIECE + 1);
    for (std::size_t rest = 0, got = 1; file != nullptr && got != 0;) {
        if (rest + PIECE + 1 > text.size()) text.resize(rest + PIECE + 1);
        got = std::fread(&text[rest], 1, PIECE, file);
        const std::size_t size = rest + got;
        rest = use(text.data(), size);
        std::memmove(text.data(), &text[size - rest], rest);
    }
    if (file != nullptr) std::fclose(file);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

int main(int, char** names) {
    double least[2] = {1e9, 1e9};
    std::size_t quotes = 0, odd = 0;
    for (int turn = 0; turn < 5; ++turn) {
        quotes = odd = 0;
        least[0] = std::min(least[0], seconds(names[1], [&](char* text, std::size_t size) {
            for (const char* at = text; (at = static_cast<const char*>(std::memchr(at, '"', text + size - at))) != nullptr; ++at) ++quotes;
            return std::size_t{0};
        }));
        hpuprof::RowScanner scanner;
        bool open = false, exact = false;
        least[1] = std::min(least[1], seconds(names[1], [&](char* text, std::size_t size) {
            const std::string_view read(text, size);
            std::size_t first = 0;
            if (!open) {  // the header
                const std::size_t events = read.find("\"traceEvents\"");
                first = read.find('[', events);
                if (!(open = events != std::string::npos && first != std::string::npos)) return size;
                ++first;
            }
            std::size_t last = read.rfind("},");
            while (last != std::string::npos && read.find_first_not_of(" \n", last + 2) != read.find('{', last)) last = read.rfind("},", last - 1);
            if (last == std::string::npos || last < first) return size;
            text[last + 1] = '\0';
            // Stamps that a double does not hold to the ns are read from their digits from the first on, as in Python.
            bool plain = scanner.scan(&text[first], last + 1 - first, exact);
            if (!plain && !exact) plain = scanner.scan(&text[first], last + 1 - first, exact = true);
            if (!plain) odd += last + 1 - first;
            return size - last - 2;
        }));
    }
    std::printf("%.3f %.3f %zu\n", least[0], least[1], odd);
    return quotes == 0;
}
