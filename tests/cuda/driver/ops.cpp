#include "op_calls.hpp"

const std::map<std::string, driver::Call>& driver::calls() {
    static const Calls all = [] {
        Calls made;
        add_gatv2_calls(made);
        add_maxsim_calls(made);
        add_pool_calls(made);
        add_stream_calls(made);
        return made;
    }();
    return all;
}
