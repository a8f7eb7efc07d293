#include "cell/cmd/help_text.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cell {
namespace {

class HelpTextFormatter : public CLI::Formatter {
 public:
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (!is_positional) std::erase_if(options, [](const CLI::Option* option) { return option->get_positional(); });
    return options.empty() ? std::string() : CLI::Formatter::make_group(std::move(group), is_positional, options);
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    constexpr std::string_view kOpposite = "{false}";
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    for (size_t at = name.find(kOpposite); at != std::string::npos; at = name.find(kOpposite)) {
      name.erase(at, kOpposite.size());
    }
    return name;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> HelpText() { return std::make_shared<HelpTextFormatter>(); }

}  // namespace cell
