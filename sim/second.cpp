// A device between two AXI4-Streams in CXXRTL, the simulator of Yosys. Reads what a host sends, and when, from the
// standard input, and writes the words that come back, one packet a line.
//
// Input: numbers between white space. How many words are to come back; then for each turn how many must have come
// before it, how many words it has, and the words.
#include <cstdint>
#include <iostream>
#include <vector>

#include "design.cc"

namespace {

constexpr int64_t MOST_CYCLES = 4'000'000;

struct Turn {
    size_t before;
    std::vector<uint32_t> words;
};

}  // namespace

int main(int, char** arguments) {
    const bool pauses = std::string(arguments[1]) == "pauses";
    size_t expected = 0, before = 0, count = 0;
    std::cin >> expected;
    std::vector<Turn> turns;
    while (std::cin >> before >> count) {
        Turn turn{before, std::vector<uint32_t>(count)};
        for (uint32_t& word : turn.words) std::cin >> word;
        turns.push_back(turn);
    }
    cxxrtl_design::p_amphw__device device;
    auto cycle = [&] {
        device.p_aclk.set<bool>(false);
        device.step();
        device.p_aclk.set<bool>(true);
        device.step();
    };
    device.p_aresetn.set<bool>(false);
    for (int i = 0; i < 3; i++) cycle();
    device.p_aresetn.set<bool>(true);

    size_t came = 0, turn = 0, at = 0;
    uint32_t noise = 1;
    for (int64_t n = 0; n < MOST_CYCLES && came < expected; n++) {
        noise = noise * 1664525 + 1013904223;  // Numerical Recipes' generator
        const bool rests = pauses && noise >> 31;
        while (turn < turns.size() && at == turns[turn].words.size()) turn++, at = 0;
        const bool offers = turn < turns.size() && came >= turns[turn].before;
        device.p_s__axis__tvalid.set<bool>(offers);
        device.p_s__axis__tdata.set<uint32_t>(offers ? turns[turn].words[at] : 0);
        device.p_s__axis__tlast.set<bool>(false);
        device.p_m__axis__tready.set<bool>(!rests);
        device.p_aclk.set<bool>(false);
        device.step();  // what the outputs are before the edge
        if (device.p_m__axis__tvalid.get<bool>() && !rests) {
            std::cout << device.p_m__axis__tdata.get<uint32_t>() << (device.p_m__axis__tlast.get<bool>() ? '\n' : ' ');
            came++;
        }
        if (offers && device.p_s__axis__tready.get<bool>()) at++;
        device.p_aclk.set<bool>(true);
        device.step();
    }
    return came == expected ? 0 : 1;
}
